"""Arguments and options of several commands, and loading the run that they name."""

from __future__ import annotations

import functools
import inspect
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

from ensue.arguments import Setting, by_option_names, settings_of
from ensue.console.output import importing_torch
from ensue.data.files import one_location
from ensue.decode.search import BeamSearch
from ensue.errors import EnsueError, RunError
from ensue.extension import pipeline_methods
from ensue.hub import PREFIX
from ensue.models.adaptation import Adaptation
from ensue.outputs import Access, check_outputs, check_streams
from ensue.processor import Precision

Command = TypeVar("Command", bound=Callable[..., Any])
RunArgument = Annotated[Path, Argument(help="A run directory, or hf:NAME of the hub."), Access.RUN]
DeviceOption = Annotated[str, Option(help="auto, cpu, cuda, cuda:1, ...")]
ThreadsOption = Annotated[
    int | None, Option(min=1, max=1024, help="CPU threads; default: the fastest number (ensue machine).")
]
OneThreadOption = Annotated[int | None, Option(min=1, max=1024, help="CPU threads; default: 1.")]
PrecisionOption = Annotated[
    Precision, Option(help="bfloat16: layers multiply in it, faster where the processor has it.")
]
VectorsOption = Annotated[
    Path | None, Option(help="A file of pretrained vectors for words that are not in the run."), Access.DATA
]
WithOption = Annotated[
    list[Path] | None,
    Option("--with", help="Another run with the same tokens, to decide together; may be repeated."),
    Access.RUN,
]
OverwriteOption = Annotated[
    bool, Option("--overwrite", help="Replace files that are there, also those that ensue did not write.")
]
ShardOption = Annotated[
    str | None,
    Option(metavar="i/N", help="Part i of N, from 1/N to N/N: what all say, one after the other, is the whole."),
]
Places = list[str] | None
TrainOption = Annotated[
    Places, Option("--train", help="Training data: a file, a folder or a glob; may be repeated."), Access.DATA
]
ValidOption = Annotated[
    Places, Option(help="Validation data; default: a tenth of the training data; may be repeated."), Access.DATA
]
TestOption = Annotated[Places, Option(help="Test data, scored once at the end; may be repeated."), Access.DATA]
PoolOption = Annotated[
    Places, Option(help="Texts without labels: a file, a folder or a glob; may be repeated."), Access.DATA
]
SettingsOption = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="Change a key of the recipe: train.seconds=60, ...; may be repeated."),
    Access.SETTINGS,
]
EncodingOption = Annotated[str, Option(help="Encoding of the text.")]


class OnceCommand(TyperCommand):
    """A command that refuses a repeated option of which only the last value would be used."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        *_, order = self.make_parser(ctx).parse_args(args=list(args))
        for option, count in Counter(order).items():
            if count > 1 and not (getattr(option, "multiple", False) or option.is_eager):
                ctx.fail(f"{option.opts[0]} is given {count} times; expected once")
        return super().parse_args(ctx, args)


SHARED_OPTION = "others"
"""The parameter of commands before which options of extensions stand."""


def signature_of(command: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a command, with the options that extensions add to it."""
    signature = inspect.signature(command, eval_str=True)
    methods = pipeline_methods(command.__name__).values()
    added = [_added(name, *option) for method in methods for name, option in method.options.items()]
    parameters = list(signature.parameters.values())
    place = [*signature.parameters, SHARED_OPTION].index(SHARED_OPTION)
    return signature.replace(parameters=[*parameters[:place], *added, *parameters[place:]])


def _added(name: str, kind: Any, help: str) -> inspect.Parameter:
    keyword, flag = inspect.Parameter.POSITIONAL_OR_KEYWORD, f"--{name.replace('_', '-')}"
    if kind is bool:
        return inspect.Parameter(name, keyword, default=False, annotation=Annotated[bool, Option(flag, help=help)])
    notes = (Option(flag, help=help), *([Access.DATA] if kind is Path else []))
    return inspect.Parameter(name, keyword, default=None, annotation=Annotated[(kind | None, *notes)])


def taken_options(command: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the given options that extensions add to a command. All of them are taken out of `options`."""
    names = [name for method in pipeline_methods(command).values() for name in method.options]
    values = {name: options.pop(name) for name in names}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def accesses(command: Callable[..., Any]) -> dict[str, Access]:
    """The parameters of a command that name places, with the classes in their annotations."""
    parameters = signature_of(command).parameters.values()
    notes = {each.name: getattr(each.annotation, "__metadata__", ()) for each in parameters}
    return {name: note for name, of in notes.items() for note in of if isinstance(note, Access)}


def with_checked_outputs(command: Command) -> Command:
    """The command, which first refuses outputs that are inputs, and files that would be lost."""
    known = accesses(command)

    @functools.wraps(command)
    def checked(**values: Any) -> Any:
        if known:
            _check(known, values)
        return command(**values)

    checked.__signature__ = signature_of(command)  # type: ignore[attr-defined]
    return checked  # type: ignore[return-value]


def _check(known: Mapping[str, Access], values: Mapping[str, Any]) -> None:
    """Raises EnsueError for the outputs of a command as `check_outputs` does."""
    given = {name: values[name] or ("-" if access is Access.TEXTS else "") for name, access in known.items()}
    by = {access: [given[name] for name in known if known[name] is access and given[name]] for access in Access}
    named = [*chain.from_iterable(each if isinstance(each, list) else [each] for each in by[Access.FILE])]
    named += [setting.partition("=")[2].strip(" \"'") for each in by[Access.SETTINGS] for setting in each]
    recipes = by[Access.RECIPE]
    data = [*by[Access.DATA], *by[Access.TEXTS], *(name for name in named if name == "-" or isfile(name))]
    if recipes:
        from ensue.recipe import read_recipe

        settings = [*chain.from_iterable(by[Access.SETTINGS])]
        with suppress(EnsueError):  # the command tells what is wrong with a recipe
            data += [place for name in recipes for place in read_recipe(name, settings).inputs]
    check_streams(data)
    files, overwrite = by[Access.OUT_FILE], bool(values.get("overwrite"))
    inputs = [*data, *by[Access.RUN], *filter(isfile, recipes)]
    check_outputs(inputs, files=files, overwrite=overwrite)
    if not values.get("resume"):  # the recipe that a run keeps may be that of its next training
        check_outputs([name for name in inputs if Path(str(name)).name != "recipe.toml"], folders=by[Access.OUT_FOLDER])


def with_settings(
    declared: type, *, after: str, without: Collection[str] = (), of_run: bool = False
) -> Callable[[Command], Command]:
    """Gives a command, in place of its `**settings`, an option for each setting that `declared` declares with a help.

    They stand behind the parameter `after`. With `of_run` their default is None, for which the run decides.
    """

    def given(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        options = [
            _option(name, setting, of_run=of_run)
            for name, setting in settings_of(declared).items()
            if setting.option.help and name not in without
        ]
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        place = 1 + [each.name for each in own].index(after)
        parameters = [*own[:place], *options, *own[place:]]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return given


def _option(name: str, setting: Setting, *, of_run: bool) -> inspect.Parameter:
    option, default = setting.option, None if of_run else setting.default
    help = f"{option.help.removesuffix('.')}; default: the run's." if of_run else option.help
    bounds: dict[str, Any] = {"min": option.least, "max": option.most} if of_run else {}
    kind: Any = Annotated[setting.kind | None if default is None else setting.kind, Option(help=help, **bounds)]
    keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(option.name or name, keyword, default=default, annotation=kind)


def taken_adaptation(options: dict[str, Any]) -> dict[str, Any]:
    """The options of `Adaptation` that are not as by default. All of them are taken out of `options`."""
    given = {name: (options.pop(name), setting.default) for name, setting in settings_of(Adaptation).items()}
    return {name: value for name, (value, default) in given.items() if value != default}


def load_for(
    command: str,
    run: Path,
    device: str,
    threads: int | None,
    precision: Precision = "float32",
    *,
    vectors: Path | None = None,
    others: Sequence[Path] | None = None,
    search: Mapping[str, object] = MappingProxyType({}),
    adaptation: Mapping[str, object] = MappingProxyType({}),
    **options: Any,
) -> Any:
    """The pipeline of a run, and of `others` that decide with it, with the options of `search` that are not None and
    those of `adaptation`.

    Raises EnsueError unless its task has this command and the given options.
    """
    from ensue.runs.hub import found_run

    path = found_run(run)  # before torch is imported, which takes seconds
    with importing_torch():
        import torch

        from ensue.library import load
        from ensue.runs.directory import RunDirectory

    entry = RunDirectory(path).entry
    every = {"vectors": vectors, "with": others or None, **search, **adaptation, **options}
    given = {name for name, value in every.items() if value not in (None, "")}
    unknown = given - entry.options(command) if command in entry.commands else set()
    if command not in entry.commands or unknown:
        *most, last = entry.commands
        commands = f"{', '.join(most)} and {last}" if most else last
        raise EnsueError(
            f"{run}: the model is a {entry.what}, for {commands}"
            + (f"; its {command} has no --{min(unknown).replace('_', '-')}" if unknown else "")
        )
    torch.set_num_threads(threads or 1)  # before anything is computed: several would wait for each other
    pipeline: Any = load(path, device=device, vectors=vectors, precision=precision)
    names = by_option_names(BeamSearch)
    if changes := {names.get(name, name): value for name, value in search.items() if value is not None}:
        pipeline = pipeline.with_search(**changes)
    pipeline = pipeline.with_adaptation(**adaptation) if adaptation else pipeline
    if not others:
        return pipeline
    options |= {"with": others, "vectors": vectors}
    loaded = (load_for(command, other, device, threads, precision, others=(), **options) for other in others)
    return pipeline.with_others(*loaded)


def behind_and_data(paths: Sequence[str] | None) -> tuple[Path | None, str]:
    """The run that stands behind the first one, if the first path is one, and the location of the data; "" for none.

    Raises EnsueError for another run among the paths.
    """
    runs = list(map(_is_run, paths or ()))
    count = int(runs[:1] == [True])
    if paths and True in runs[count:]:
        wrong = paths[runs.index(True, count)]
        raise EnsueError(f"{wrong}: a run; expected data, or one run behind a cutter and then data")
    return Path(paths[0]) if paths and count else None, one_location(list(paths or ())[count:])


def _is_run(path: str) -> bool:
    if path.startswith(PREFIX):
        from ensue.runs.hub import found_run

        with suppress(RunError):
            return found_run(path).is_dir()
        return False
    return (Path(path) / "config.json").exists()


def with_behind(
    command: str, pipeline: Any, run: Path | None, device: str, threads: int | None, precision: Precision
) -> Any:
    """The pipeline, and that of `run` behind it as one. Raises EnsueError for two that do not go together."""
    return pipeline if run is None else pipeline.before(load_for(command, run, device, threads, precision))


def quoted(path: Path | str) -> str:
    """The path, quoted for a shell."""
    return shlex.quote(str(path))


def say(text: str) -> None:
    """Writes a line to stderr."""
    print(text, file=sys.stderr)
