"""Law: an output of a command is never one of its inputs, for every command and option."""

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import typer

from command_fixtures import contents
from ensue.cli import command_line
from ensue.cli.generating import embed
from ensue.cli.options import accesses, add_checks
from ensue.cli.program import commands
from ensue.cli.training import train
from ensue.cli.using import predict, score
from ensue.errors import EnsueError
from ensue.extensions.annotating.command import choose
from ensue.extensions.surveying.command import data
from ensue.outputs import Access
from ensue.recipe import read_recipe

PLAIN = {
    "at_least", "column", "columns", "device", "encoders", "encoding", "format", "host", "key", "labels", "language",
    "license", "name", "off", "offsets", "older_than", "output_encoding", "pooling", "precision", "require", "shard",
    "sources", "splitter", "target", "targets", "text", "to", "token", "track", "trusted_host", "words",
}  # fmt: skip
"""Parameters that are texts and not paths."""
OUTPUTS = (Access.OUT_FILE, Access.OUT_FOLDER)
WRITERS = [command for command in commands().values() if set(accesses(command).values()) & {*OUTPUTS}]


def kinds_of(annotation: Any) -> set[Any]:
    """Return the classes in an annotation."""
    parts = (
        get_args(annotation)[:1] if get_origin(annotation) is None and get_args(annotation) else get_args(annotation)
    )
    return {annotation}.union(*map(kinds_of, parts))


def unclassified(command: Callable[..., Any]) -> set[str]:
    """Return the parameters of a command that could be paths and have no access."""
    parameters = inspect.signature(command, eval_str=True).parameters
    texts = {name for name, each in parameters.items() if kinds_of(each.annotation) & {str, Path}}
    paths = {name for name, each in parameters.items() if Path in kinds_of(each.annotation)}
    return (texts - PLAIN | paths) - accesses(command).keys()


def test_each_parameter_of_a_path_has_an_access() -> None:
    assert {command.__name__: names for command in commands().values() if (names := unclassified(command))} == {}
    assert len(WRITERS) >= 13


def test_a_parameter_without_an_access_is_detected() -> None:
    def new(scores: Path | None = None, chart: list[str] | None = None, count: int = 1) -> None: ...

    assert unclassified(new) == {"scores", "chart"}


def meetings(folder: Path, output: Access, access: Access) -> Iterator[tuple[str, str]]:
    """Yield an output and an input that is the same path, contains it, or is in it. All paths exist."""
    data, run = folder / "data", folder / "run"
    (data / "below").mkdir(parents=True)
    run.mkdir()
    for path in (data / "a.tsv", data / "below" / "b.tsv", run / "c.tsv"):
        path.write_text(f"label\ttext\n{path}\tone\n")
    os.link(data / "a.tsv", folder / "hard.tsv")
    (folder / "soft.tsv").symlink_to(data / "a.tsv")
    (folder / "linked").symlink_to(data)
    same = [(f"{folder}/{name}", f"{data}/a.tsv") for name in ("hard.tsv", "soft.tsv", "data/../data/a.tsv")]
    if output is Access.OUT_FOLDER:
        yield str(run), f"{run}/c.tsv"
        if access not in (Access.FILE, Access.RECIPE, Access.SETTINGS):
            yield from (
                (f"{data}/new", str(data)),
                (f"{folder}/linked/new", str(data)),
                (str(data), f"{folder}/linked"),
            )
            yield str(data), f"{data}/../linked/below"
    else:
        yield from same
        yield f"{data}/a.tsv", f"{folder}/soft.tsv"
        if access not in (Access.FILE, Access.RECIPE, Access.SETTINGS):
            yield from ((f"{data}/new.tsv", str(data)), (f"{folder}/hard.tsv", str(data)))
            yield f"{folder}/linked/new.tsv", f"{data}/"
    if access in (Access.DATA, Access.TEXTS):
        name = "new" if output is Access.OUT_FOLDER else "new.tsv"
        yield f"{data}/below/{name}", f"{data}/*/{name}"
        yield f"{data}/below/{name}", f"{data}/**"
        yield f"{folder}/linked/{name}", f"{data}/[mn]*"


def line(command: Callable[..., Any], values: dict[str, str]) -> list[str]:
    """Return a command line with these values, and with arbitrary values of other required parameters."""
    name, words = command.__name__.rstrip("_"), list[str]()
    signature = inspect.signature(command, eval_str=True).parameters
    parsed: Any = typer.main.get_command(command_line()).commands[name]  # type: ignore[attr-defined]
    for parameter in parsed.params:
        value = values.get(parameter.name)
        if value is None and parameter.required:
            value = "1" if int in kinds_of(signature[parameter.name].annotation) else "nothing"
        if value is not None:
            words += [value] if parameter.param_type_name == "argument" else [parameter.opts[0], value]
        elif parameter.name == "overwrite":
            words.append("--overwrite")
    return [name, *words]


def check_pair(command: Callable[..., Any], output: str, read: str, folder: Path, refused: Callable[..., str]) -> None:
    """Assert that each pair is refused: the first on the command line, the others in a call of the command."""
    known = accesses(command)
    for number, (path, location) in enumerate([*meetings(folder, known[output], known[read])]):
        before = contents(folder)
        value: Any = f"features.vectors={location}" if known[read] is Access.SETTINGS else location
        if number == 0:
            message = refused(*line(command, {output: path, read: value}))
        else:
            values = {
                **dict.fromkeys(known),
                output: Path(path),
                read: value if known[read] is Access.RECIPE else [value],
                "overwrite": True,
            }
            with pytest.raises(EnsueError) as caught:
                add_checks(command)(**values)
            message = str(caught.value)
        assert message.startswith(f"{path}: "), (path, location)
        assert "which is read" in message
        assert contents(folder) == before


PAIRS = [
    (command, output, read)
    for command in WRITERS
    for output, of in accesses(command).items()
    for read, access in accesses(command).items()
    if of in OUTPUTS and access not in OUTPUTS
]


@pytest.mark.parametrize("command", WRITERS, ids=lambda command: command.__name__)
def test_an_output_is_never_an_input(command: Callable[..., Any], refused: Callable[..., str], tmp_path: Path) -> None:
    for _, output, read in (pair for pair in PAIRS if pair[0] is command):
        check_pair(command, output, read, tmp_path / output / read, refused)


def by_name(out: Path, name: str, *, is_folder: bool) -> str:
    return "which is read" if str(out) == name else ""


@pytest.mark.parametrize(
    ("place", "planted"), [("ensue.cli.options._check_paths", lambda *_: None), ("ensue.outputs._conflict", by_name)]
)
def test_planted_bugs_are_detected(
    place: str, planted: object, refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bugs are a command without the check, and a comparison of names in place of files."""
    monkeypatch.setattr(place, planted)
    with pytest.raises(AssertionError):
        check_pair(choose, "out", "pool", tmp_path, refused)


@pytest.mark.parametrize("command", WRITERS, ids=lambda command: command.__name__)
def test_a_file_that_ensue_did_not_write_is_replaced_only_with_overwrite(
    command: Callable[..., Any], refused: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "mine.tsv").write_text("mine")
    for output in (name for name, access in accesses(command).items() if access is Access.OUT_FILE):
        arguments = [each for each in line(command, {output: f"{tmp_path}/mine.tsv"}) if each != "--overwrite"]
        assert refused(*arguments) == f"{tmp_path}/mine.tsv: exists; --overwrite replaces it"
        assert "exists;" not in refused(*arguments, "--overwrite")
    assert (tmp_path / "mine.tsv").read_text() == "mine"


@contextmanager
def redirected(descriptor: int, path: Path, flags: int) -> Iterator[None]:
    usual, file = os.dup(descriptor), os.open(path, flags)
    os.dup2(file, descriptor)
    try:
        yield
    finally:
        os.dup2(usual, descriptor)
        os.close(usual)
        os.close(file)


@pytest.mark.parametrize("command", [predict, embed, score, train, data], ids=lambda command: command.__name__)
def test_results_are_not_written_to_an_input(command: Callable[..., Any], tmp_path: Path) -> None:
    known = accesses(command)
    (tmp_path / "a.txt").write_text("text")
    read = next(name for name, access in known.items() if access in (Access.DATA, Access.TEXTS))
    for number, location in ((1, "a.txt"), (1, ""), (2, "*.txt"), (1, "-")):
        value = [location if location == "-" else f"{tmp_path}/{location}"]
        with redirected(number, tmp_path / "a.txt", os.O_WRONLY), redirected(0, tmp_path / "a.txt", os.O_RDONLY):
            with pytest.raises(EnsueError, match=r"^std(out|err): is written to .*, which is read"):
                add_checks(command)(**{**dict.fromkeys(known), read: value})
            if known[read] is Access.TEXTS:
                with pytest.raises(EnsueError, match=r"^std(out|err): is written to stdin, which is read"):
                    add_checks(command)(**dict.fromkeys(known))


def test_the_files_of_a_recipe_are_inputs(refused: Callable[..., str], tmp_path: Path) -> None:
    vectors, recipe = tmp_path / "vectors.jsonl", tmp_path / "mine.toml"
    vectors.write_text("the 1 2\n")
    (tmp_path / "data").mkdir()
    settings = {"data.train": str(tmp_path / "data"), "features.vectors": str(vectors)}
    recipe.write_text(read_recipe("tag-lstm", settings).to_toml())
    options = ["--recipe", recipe, "--out", vectors, "--overwrite"]
    assert f"{vectors}: is the same as" in refused("doubt", "labels.tsv", *options)
    assert ": is inside of" in refused("train", recipe, "--out", tmp_path / "data" / "run")
