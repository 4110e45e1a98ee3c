"""Output files are complete or unchanged, and no output replaces an input."""

import inspect
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ensue
from ensue import outputs
from ensue.data.files import all_files
from ensue.errors import DataError, EnsueError
from ensue.extensions.error_analysis.report import report
from ensue.extensions.estimators.sklearn import Tagger, TextClassifier
from ensue.extensions.frames.drawing.pipeline import DrawingPipeline
from ensue.extensions.frames.frame_prediction.pipeline import FramePredictionPipeline
from ensue.extensions.word_vectors.pipeline import WordVectorsPipeline
from ensue.inspection.page import Inspection
from ensue.outputs import atomic_output, check_new, check_outputs
from ensue.tasks.labeling.pipeline import LabelingPipeline
from pages import named, public


def write_half(path: Path, error: type[BaseException]) -> None:
    with atomic_output(path) as new:
        new.write_text("half")
        raise error


def test_a_file_is_replaced_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o640)
    with atomic_output(path) as new:
        new.write_text("new")
        assert (path.read_text(), new.suffix, new.parent) == ("old", ".txt", tmp_path)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            write_half(path, error)
    assert (path.read_text(), [*tmp_path.iterdir()]) == ("new", [path])


def test_a_new_file_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic_output(tmp_path / "a") as new:
            new.write_text("a")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_symbolic_links_are_followed_and_hard_links_keep_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("old")
    os.link(tmp_path / "data", tmp_path / "hard")
    (tmp_path / "soft").symlink_to("data")
    with atomic_output(tmp_path / "soft") as new:
        new.write_text("new")
    assert (tmp_path / "soft").is_symlink()
    assert [(tmp_path / name).read_text() for name in ("data", "soft", "hard")] == ["new", "new", "old"]


def test_pipes_devices_and_descriptors_are_written_directly(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    for path in (tmp_path / "pipe", Path("/dev/null")):
        check_new(path, overwrite=False)
        with atomic_output(path) as new:
            assert new == path
            new.write_text("text")
    reader.join()
    assert read == ["text"]
    program = "from ensue.outputs import *\nwith atomic_output('/dev/stdout') as path: path.write_text('b')"
    with (tmp_path / "log").open("a") as log:
        log.write("a")
        log.flush()
        subprocess.run([sys.executable, "-c", program], stdout=log, check=True)
    assert (tmp_path / "log").read_text() == "ab"
    with pytest.raises(DataError, match=r"/dev/full: cannot be written \(No space"), atomic_output("/dev/full") as path:
        path.write_text("text")


def test_a_file_written_by_the_process_is_replaced_until_it_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for text in ("one", "two"):
        check_new(path, overwrite=False)
        with atomic_output(path) as new:
            new.write_text(text)
    path.write_text("mine")
    with pytest.raises(EnsueError, match=r"a: exists; overwrite=True replaces it$"):
        check_new(path, overwrite=False)
    check_new(path, overwrite=True)
    path.write_text("")
    check_new(path, overwrite=False)


def test_two_outputs_to_the_same_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(EnsueError, match="two outputs are this file"):
        check_outputs([], files=[tmp_path / "a", tmp_path / "link"])
    check_outputs(["-", "", "hf:me/x", "no/such/*"], files=["/dev/null", "/dev/null", tmp_path / "a"])


def of_run(run: str) -> Any:
    return SimpleNamespace(run=run, statistics=SimpleNamespace(shape=None), reading=lambda *_: {})


def reporting(pipeline: Any) -> Any:
    """Add the method `report` of an extension."""
    pipeline.report = partial(report, pipeline)
    return pipeline


def fitted(estimator: type[Any], texts: Any, labels: Any, read: str, out: str) -> None:
    estimator(settings={"data.valid": read}, out=out).fit(texts, labels)


WRITERS: dict[str, tuple[Callable[[str, str], object], bool]] = {
    "train": (lambda read, out: ensue.train("char-lstm", train=read, out=out, overwrite=True), True),
    "distill": (lambda read, out: ensue.distill(read, "classify-bag", pool=read, out=out, overwrite=True), True),
    "import_run": (lambda read, out: ensue.import_run(read, out, overwrite=True), True),
    "export_run": (lambda read, out: ensue.export_run(read, out, overwrite=True), True),
    "TextClassifier": (partial(fitted, TextClassifier, ["a", "b"], ["x", "y"]), True),
    "Tagger": (partial(fitted, Tagger, [["a"], ["b"]], [["x"], ["y"]]), True),
    "report": (lambda read, out: report(of_run(""), read, errors=out, overwrite=True), False),
    "LabelingPipeline.evaluate": (
        lambda read, out: LabelingPipeline.evaluate(reporting(of_run("")), read, errors=out, overwrite=True), False
    ),
    "FramePredictionPipeline.generate_into": (
        lambda read, out: FramePredictionPipeline.generate_into(
            of_run(""), Path(f"{out}"), prompt=read, overwrite=True
        ), False,
    ),
    "DrawingPipeline.generate_into": (
        lambda read, out: DrawingPipeline.generate_into(of_run(read), out, overwrite=True), False
    ),
    "WordVectorsPipeline.export": (
        lambda read, out: WordVectorsPipeline.export(of_run(read), out, overwrite=True), False
    ),
}  # fmt: skip
"""Calls that read one path and write another, and whether the output is a folder."""


def test_writers_has_each_public_function_that_writes() -> None:
    known = {(named(path), path.rpartition(".")[2]): members for path, members in public().items()}
    functions = {name: value for value, name in known}
    members = [(value, name, member) for (value, name), of_class in known.items() for member in of_class]
    functions |= {f"{name}.{member}": getattr(value, member) for value, name, member in members}
    arguments = {name: {*inspect.signature(value).parameters} for name, value in functions.items() if callable(value)}
    writers = {name for name, names in arguments.items() if names & {"out", "overwrite"}}
    assert writers == {"Inspection.save", *WRITERS}


@pytest.mark.parametrize("name", WRITERS)
def test_an_output_is_never_an_input(name: str, tmp_path: Path) -> None:
    call, is_folder = WRITERS[name]
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.png").write_text("a")
    os.link(data / "a.png", tmp_path / "hard.png")
    (tmp_path / "soft.png").symlink_to(data / "a.png")
    pairs = [(data, data / "new.png")]
    if is_folder:
        pairs += [(data / "a.png", data), (tmp_path / "soft.png", data)]
    else:
        pairs += [(data / "a.png", tmp_path / link) for link in ("hard.png", "soft.png")]
    for read, out in pairs:
        with pytest.raises(EnsueError, match="which is read; choose another place"):
            call(str(read), str(out))
        assert [(path.name, path.read_text()) for path in data.iterdir()] == [("a.png", "a")]


def test_a_page_replaces_no_file_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("mine")
    page = Inspection("a", None)
    with pytest.raises(EnsueError, match="overwrite=True replaces it"):
        page.save(tmp_path / "a.html")
    for overwrite in (True, False):
        page.save(tmp_path / "a.html", overwrite=overwrite)


@pytest.mark.parametrize("pattern", ["**", "**/*.txt", "*/a.txt", "b/*/a.txt", "none/*", ".*/*"])
def test_patterns_match_the_same_files_as_for_readers(pattern: str, tmp_path: Path, in_tmp_path: None) -> None:
    """`**` does not follow links to folders, which may be circular."""
    for name in ("a.txt", "b/a.txt", "b/c/d.txt", ".hidden/a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "loop").symlink_to("..")
    try:
        expected = {*all_files(pattern)}
    except DataError:
        expected = set()
    assert {*outputs._matches(Path(pattern))} == expected
    assert outputs._contains(pattern, Path("a.txt").stat()) == any(path.samefile("a.txt") for path in expected)


@pytest.mark.parametrize(
    ("format", "lines"),
    [
        ("csv", ["a,b\n", '"x, y",\n', '1,"[""p"", 2]"\n']),
        ("tsv", ["a\tb\n", "x, y\t\n", '1\t["p", 2]\n']),
        ("jsonl", ['{"a": "x,\\ny"}\n', '{"a": 1, "b": ["p", 2]}\n']),
    ],
)
def test_rows_are_written_in_the_format_of_the_suffix(format: str, lines: list[str]) -> None:
    rows = [{"a": "x,\ny"}, {"a": 1, "b": ["p", 2]}]
    assert outputs.row_format(f"a.{format.upper()}") == format
    written = [*outputs.row_lines(format, rows, ["a", "b"])]
    assert [line.replace("x,\ny", "x, y") for line in written] == lines
    with pytest.raises(EnsueError, match=r"^a\.txt: expected a name that ends in \.csv, \.jsonl, \.tsv$"):
        outputs.row_format("a.txt")
