"""Arguments and options that several commands share, and loading of runs."""

import functools
import inspect
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from os.path import isfile
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from typer import Argument, Option
from typer.core import TyperCommand

from ensue.console.output import pause_garbage_collection
from ensue.data.files import as_location
from ensue.decode.search import BeamSearch
from ensue.errors import DataError, EnsueError, NumericSetting, RunError, fields_by_option, numeric_settings
from ensue.extension import generate_options, local_run, pipeline_methods
from ensue.models.adaptation import Adaptation
from ensue.outputs import Access, check_outputs, check_streams
from ensue.processor import InferencePrecision

Command = TypeVar("Command", bound=Callable[..., Any])
RunArgument = Annotated[Path, Argument(help="A run directory, or an address such as hf:NAME."), Access.RUN]
DeviceOption = Annotated[str, Option(help="auto, cpu, cuda, cuda:1, ...")]
ThreadsOption = Annotated[
    int | None, Option(min=1, max=1024, help="CPU threads; default: the fastest number (ensue machine).")
]
OneThreadOption = Annotated[int | None, Option(min=1, max=1024, help="CPU threads; default: 1.")]
PrecisionOption = Annotated[
    InferencePrecision, Option(help="bfloat16 or int8: for matrix products, faster on some processors.")
]
VectorsOption = Annotated[
    Path | None, Option(help="A file of pretrained vectors for words that are not in the run."), Access.DATA
]
WithOption = Annotated[list[Path] | None, Access.RUN, Option(
    "--with", help="Another run with the same tokens, for an ensemble; may be repeated."
)]  # fmt: skip
OverwriteOption = Annotated[
    bool, Option("--overwrite", help="Replace existing files, even if ensue did not write them.")
]
ShardOption = Annotated[str | None, Option(
    metavar="i/N",
    help="Shard i of N, from 1/N to N/N; the outputs of all shards, concatenated, are the output for all texts.",
)]  # fmt: skip
Paths = list[str] | None
_PATHS = "a file, a folder or a glob; may be repeated."
TrainOption = Annotated[Paths, Option("--train", help=f"Training data: {_PATHS}"), Access.DATA]
ValidOption = Annotated[Paths, Option(help=f"Validation data, or a tenth of --train: {_PATHS}"), Access.DATA]
TestOption = Annotated[Paths, Option(help="Test data, scored once at the end; may be repeated."), Access.DATA]
PoolOption = Annotated[Paths, Option(help=f"Texts without labels: {_PATHS}"), Access.DATA]
SettingsOption = Annotated[list[str] | None, Access.SETTINGS, Option(
    "--set", metavar="KEY=VALUE", help="Change a key of the recipe: train.seconds=60, ...; may be repeated."
)]  # fmt: skip
Columns = Mapping[str, str] | None
"""The columns of the data that the user has chosen, by the names of `DATA_OPTIONS`."""
FormatOption = Annotated[str | None, Option(help="The format of labeled data; default: by name and first lines.")]
EncodingOption = Annotated[str | None, Option(help="The encoding of the text; default: that of the training data.")]
DATA_OPTIONS = {
    "encoding": ("--encoding", "The encoding of the data; default: utf-8."),
    "format": ("--format", "The format of labeled data; default: by name and first lines."),
    "words": ("--words/--text", "The column or key of the words, or of the text."),
    "labels": ("--labels", "The column or key of the labels."),
    "sources": ("--sources", "For pairs: the columns, keys or language of the source."),
    "targets": ("--targets", "For pairs: the columns, keys or language of the target."),
}
"""The flags and the help of options that set the keys `data.NAME` of a recipe, or choose the columns that a run reads.
Commands with `--set` or with a parameter `columns` have all of these options.
"""


class StrictCommand(TyperCommand):
    """A command that raises an error if an option with a single value is repeated."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        *_, order = self.make_parser(ctx).parse_args(args=list(args))
        for option, count in Counter(order).items():
            if count > 1 and not (getattr(option, "multiple", False) or option.is_eager):
                ctx.fail(f"{option.opts[0]} is given {count} times; expected once")
        return super().parse_args(ctx, args)


ADDED_BEFORE = "others"
"""The options of extensions are inserted before this parameter of a command without `settings` and `columns`."""


def signature_of(command: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a command, with the options of `DATA_OPTIONS` and the options that extensions add."""
    signature = inspect.signature(command, eval_str=True)
    extended, added = _find_added_options(command.__name__), list[inspect.Parameter]()
    receiver = next((name for name in ("settings", "columns") if name in signature.parameters), "")
    for name, (flags, help) in DATA_OPTIONS.items():
        if receiver and name not in signature.parameters:
            note = "; default: that of the training data." if receiver == "columns" else "."
            kind: Any = Annotated[str, Option(*flags.split("/"), help=help.removesuffix(".") + note)]
            added.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default="", annotation=kind))
    added += (_make_parameter(name, *option) for name, option in extended.items())
    before, parameters = receiver or ADDED_BEFORE, list(signature.parameters.values())
    index = [*signature.parameters, before].index(before)
    following = parameters[index + (before == "columns") :]
    return signature.replace(parameters=[*parameters[:index], *added, *following])


def _find_added_options(command: str) -> dict[str, tuple[type, str, Access]]:
    """Return the type, the help and the use of a path for each option that extensions add to a command."""
    if command == "generate":
        return {name: (*option, Access.DATA) for name, option in generate_options().items()}
    return {
        name: (*option, Access.OUT_FILE if method.reads_data else Access.DATA)
        for method in pipeline_methods(command).values()
        for name, option in method.options.items()
    }


def _make_parameter(name: str, kind: Any, help: str, access: Access) -> inspect.Parameter:
    keyword, flag = inspect.Parameter.POSITIONAL_OR_KEYWORD, f"--{name.replace('_', '-')}"
    if kind is bool:
        return inspect.Parameter(name, keyword, default=False, annotation=Annotated[bool, Option(flag, help=help)])
    notes = (Option(flag, help=help), *([access] if kind is Path else []))
    return inspect.Parameter(name, keyword, default=None, annotation=Annotated[(kind | None, *notes)])


def pop_options(command: str, options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of extensions for a command from `options`, and return the removed options with a value."""
    values = {name: options.pop(name) for name in _find_added_options(command)}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def accesses(command: Callable[..., Any]) -> dict[str, Access]:
    """Return how a command uses the paths in its parameters (`Access`), from their annotations."""
    parameters = signature_of(command).parameters.items()
    metadata = {name: getattr(parameter.annotation, "__metadata__", ()) for name, parameter in parameters}
    return {name: item for name, items in metadata.items() for item in items if isinstance(item, Access)}


def add_checks(command: Command) -> Command:
    """Return the command with checks of its paths, and with `DATA_OPTIONS` added to its settings or columns."""
    uses, declared = accesses(command), inspect.signature(command).parameters

    @functools.wraps(command)
    def checked(**values: Any) -> Any:
        options = {name: value for name in DATA_OPTIONS if name not in declared and (value := values.pop(name, ""))}
        if "columns" in declared:
            values["columns"] = options
        if "settings" in values:
            options |= {name: options[name].split(",") for name in ("sources", "targets") if name in options}
            settings = (f"data.{name}={json.dumps(value, ensure_ascii=False)}" for name, value in options.items())
            values["settings"] = [*(values["settings"] or []), *settings]
        if uses:
            _check_paths(uses, values)
        try:
            return command(**values)
        except DataError as error:
            raise error if "settings" in declared else error.with_options() from None

    checked.__signature__ = signature_of(command)  # type: ignore[attr-defined]
    return checked  # type: ignore[return-value]


def _check_paths(uses: Mapping[str, Access], values: Mapping[str, Any]) -> None:
    """Call `check_streams` and `check_outputs` for the inputs and outputs of a command."""
    arguments = {name: values[name] or ("-" if access is Access.TEXTS else "") for name, access in uses.items()}
    by_use = {use: [arguments[name] for name in uses if uses[name] is use and arguments[name]] for use in Access}
    names = [*chain.from_iterable(value if isinstance(value, list) else [value] for value in by_use[Access.FILE])]
    names += [setting.partition("=")[2].strip(" \"'") for settings in by_use[Access.SETTINGS] for setting in settings]
    recipes = by_use[Access.RECIPE]
    data = [*by_use[Access.DATA], *by_use[Access.TEXTS], *(name for name in names if name == "-" or isfile(name))]
    if recipes:
        from ensue.recipe import read_recipe

        settings = [*chain.from_iterable(by_use[Access.SETTINGS])]
        with suppress(EnsueError):  # the command reports an error of the recipe
            data += [path for name in recipes for path in read_recipe(name, settings).inputs]
    check_streams(data)
    files, overwrite = by_use[Access.OUT_FILE], bool(values.get("overwrite"))
    inputs = [*data, *by_use[Access.RUN], *filter(isfile, recipes)]
    check_outputs(inputs, files=files, overwrite=overwrite)
    if not values.get("resume"):  # training may replace the run whose recipe it reads
        others = [name for name in inputs if Path(str(name)).name != "recipe.toml"]
        check_outputs(others, folders=by_use[Access.OUT_FOLDER])


def with_settings(
    declared: type, *, after: str, without: Collection[str] = (), of_run: bool = False
) -> Callable[[Command], Command]:
    """Return a decorator that replaces `**settings` of a command by the settings of `declared` that have a help text.

    The options come after the parameter `after`. With `of_run` their default is None, which means the run's value.
    """

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        settings = {name: each for name, each in numeric_settings(declared).items() if each.option.help}
        options = [_make_option(name, settings[name], of_run=of_run) for name in settings if name not in without]
        named = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        index = 1 + [parameter.name for parameter in named].index(after)
        parameters = [*named[:index], *options, *named[index:]]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def _make_option(name: str, setting: NumericSetting, *, of_run: bool) -> inspect.Parameter:
    option, default = setting.option, None if of_run else setting.default
    help = f"{option.help.removesuffix('.')}; default: the run's." if of_run else option.help
    bounds: dict[str, Any] = {"min": option.minimum, "max": option.maximum} if of_run else {}
    kind: Any = Annotated[setting.kind | None if default is None else setting.kind, Option(help=help, **bounds)]
    keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(option.name or name, keyword, default=default, annotation=kind)


def pop_adaptation(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of `Adaptation` from `options`, and return the removed options that differ from defaults."""
    values = {name: (options.pop(name), setting.default) for name, setting in numeric_settings(Adaptation).items()}
    return {name: value for name, (value, default) in values.items() if value != default}


def load_for(
    command: str, run: Path, device: str, threads: int | None, precision: InferencePrecision = "float32", *,
    vectors: Path | None = None, others: Sequence[Path] | None = None,
    search: Mapping[str, object] = MappingProxyType({}), adaptation: Mapping[str, object] = MappingProxyType({}),
    columns: Columns = None, **options: Any,
) -> Any:  # fmt: skip
    """Load the pipeline of a run, with `others` as an ensemble, for data with `columns`.

    Raises EnsueError if the run's task lacks the command, or an option that has a value.
    """
    from ensue.runs.schema import existing_run

    path = existing_run(run)  # before torch is imported, which takes seconds
    with pause_garbage_collection():
        import torch

        from ensue.library import load
        from ensue.runs.directory import RunDirectory

    entry = RunDirectory(path).entry
    values = {"vectors": vectors, "with": others or None, **search, **adaptation, **(columns or {}), **options}
    names = {name for name, value in values.items() if value not in (None, "")}
    supported = entry.options(command) | {*entry.pipeline_class.column_options} if command in entry.commands else names
    unknown = {DATA_OPTIONS.get(name, (f"--{name.replace('_', '-')}",))[0] for name in names - supported}
    if command not in entry.commands or unknown:
        *most, last = entry.commands
        commands = f"{', '.join(most)} and {last}" if most else last
        raise EnsueError(
            f"{run}: the model is a {entry.what}, for {commands}"
            + (f"; its {command} has no {min(unknown)}" if unknown else "")
        )
    torch.set_num_threads(threads or 1)  # before any computation
    pipeline: Any = load(path, device=device, vectors=vectors, precision=precision)
    fields = fields_by_option(BeamSearch)
    if changes := {fields.get(name, name): value for name, value in search.items() if value is not None}:
        pipeline = pipeline.with_search(**changes)
    pipeline = pipeline.with_adaptation(**adaptation) if adaptation else pipeline
    pipeline = pipeline.with_columns(**columns) if columns else pipeline
    if not others:
        return pipeline
    options |= {"with": others, "vectors": vectors}
    loaded = (load_for(command, other, device, threads, precision, others=(), **options) for other in others)
    return pipeline.with_others(*loaded)


def split_tagger(paths: Sequence[str] | None) -> tuple[Path | None, str]:
    """Split the paths of a command: return the run in the first path (None: not a run), and the location of the data.

    Raises EnsueError if another path is a run.
    """
    runs = list(map(_is_run, paths or ()))
    count = int(runs[:1] == [True])
    if paths and True in runs[count:]:
        run = paths[runs.index(True, count)]
        raise EnsueError(f"{run}: a run; expected data (for a cutter: the run of a tagger, then data)")
    return Path(paths[0]) if paths and count else None, as_location(list(paths or ())[count:])


def _is_run(path: str) -> bool:
    with suppress(RunError):
        return (local_run(path) / "config.json").exists()
    return False


def with_tagger(
    command: str, pipeline: Any, run: Path | None, device: str, threads: int | None, precision: InferencePrecision
) -> Any:
    """Return a cutter's pipeline that passes its words to the tagger `run`; without a run, return the pipeline."""
    return pipeline if run is None else pipeline.before(load_for(command, run, device, threads, precision))


def quote_path(path: Path | str) -> str:
    """Return a path, quoted for a shell."""
    return shlex.quote(str(path))


def notify(text: str) -> None:
    """Write a line to stderr."""
    print(text, file=sys.stderr)
