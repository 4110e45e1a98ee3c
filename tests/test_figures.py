"""The figures of docs/architecture.md: the size of the source, and the number of files that a task calls.

No figure may rise above `MAX_FIGURES`. A change that lowers a figure lowers the bound and the table of the page.
"""

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import ensue
from ensue.extensions.serving.service import Service
from ensue.recipe import read_recipe
from ensue.runs.reporter import Reporter, StepReport
from ensue.training.run import train_run
from extensions.serving import conftest
from extensions.serving.client import Client
from extensions.serving.conftest import TEXT, language_pipeline
from kept_runs.make import unpacked
from page_data import tiny
from pages import REPOSITORY
from source_imports import SOURCE, import_cycles

serve = conftest.serve
PACKAGE = SOURCE / "ensue"
MAX_FIGURES = {
    "Python lines of `src`": 83_179,
    "files of `src`": 465,
    "Python lines of the core": 54_662,
    "files of the core": 299,
    "Python lines of the largest extension": 6_405,
    "files of `tasks`": 71,
    "files loose in `tasks`": 2,
    "import cycles": 0,
    "files of a step of `train char-lstm`": 25,
    "files of a warm `predict` of a tagger": 27,
    "files of `serving` of one completion": 12,
}


def lines(files: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def figures_of_the_source() -> dict[str, int]:
    extensions = [list(folder.rglob("*.py")) for folder in (PACKAGE / "extensions").iterdir() if folder.is_dir()]
    files = list(PACKAGE.rglob("*.py"))
    core = [path for path in files if "extensions" not in path.relative_to(PACKAGE).parts]
    return {
        "Python lines of `src`": lines(files),
        "files of `src`": len(files),
        "Python lines of the core": lines(core),
        "files of the core": len(core),
        "Python lines of the largest extension": max(map(lines, extensions)),
        "files of `tasks`": len(list((PACKAGE / "tasks").rglob("*.py"))),
        "files loose in `tasks`": len(list((PACKAGE / "tasks").glob("*.py"))),
    }


class CalledFiles:
    """A profiler of the files of the package in which functions are called while `is_on`, also in later threads."""

    def __init__(self, subfolder: str = "") -> None:
        self.files: set[str] = set()
        self.is_on = False
        self.prefix = str(PACKAGE / subfolder)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(self.prefix):
            self.files.add(frame.f_code.co_filename)

    @contextmanager
    def recording(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self)
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False
            sys.setprofile(before)


class _OneStep(Reporter):
    """Record the files that are called between the end of one step and the end of the next."""

    def __init__(self) -> None:
        self.passed = CalledFiles()

    def stepped(self, report: StepReport) -> None:
        if report.step == 3:
            sys.setprofile(self.passed)
        self.passed.is_on = report.step == 3


def files_of_a_step(tmp_path: Path) -> set[str]:
    (tmp_path / "text.txt").write_text(TEXT * 20, encoding="utf-8")
    recipe = tiny(read_recipe("char-lstm", {"data.train": str(tmp_path / "text.txt")}))
    train = recipe.train.model_copy(update={"steps": 6})
    reporter = _OneStep()
    try:
        train_run(recipe.model_copy(update={"train": train}), tmp_path / "run", threads=1, reporter=reporter)
    finally:
        sys.setprofile(None)
    return reporter.passed.files


def files_of_a_prediction(tmp_path: Path) -> set[str]:
    unpacked("tag-lstm-crf", tmp_path)
    tagger, passed = ensue.load(tmp_path / "tag-lstm-crf"), CalledFiles()
    for _ in range(3):
        tagger.predict(["Anna Novak sees Lima."])
    with passed.recording():
        tagger.predict(["Anna Novak sees Lima."])
    return passed.files


@pytest.fixture
def watched_threads() -> Iterator[CalledFiles]:
    """Record the files of `serving` that are called, also in threads that the test starts."""
    passed = CalledFiles("extensions/serving")
    threading.setprofile(passed)
    yield passed
    threading.setprofile(None)  # type: ignore[arg-type]


def check(name: str, figure: int) -> None:
    assert figure <= MAX_FIGURES[name], f"{name}: {figure}, more than {MAX_FIGURES[name]}"


def listed(heading: str) -> set[str]:
    """Return the files in the table below a heading of docs/architecture.md."""
    text = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    return set(
        re.findall(r"^\| `(\S+\.py)` \|", text.partition(f"## {heading}\n")[2].partition("\n## ")[0], re.MULTILINE)
    )


def names(files: set[str]) -> set[str]:
    return {Path(file).relative_to(PACKAGE).as_posix() for file in files}


def test_the_source_grows_no_larger() -> None:
    figures = figures_of_the_source()
    assert {name: number for name, number in figures.items() if number > MAX_FIGURES[name]} == {}


@pytest.mark.slow
def test_import_cycles_do_not_increase() -> None:
    check("import cycles", len(import_cycles(SOURCE, annotations=True)))


@pytest.mark.slow
def test_a_step_calls_no_more_files(tmp_path: Path) -> None:
    passed = files_of_a_step(tmp_path)
    check("files of a step of `train char-lstm`", len(passed))
    assert listed("A tensor in one training step") == names(passed)


def test_a_prediction_calls_no_more_files(tmp_path: Path) -> None:
    passed = files_of_a_prediction(tmp_path)
    check("files of a warm `predict` of a tagger", len(passed))
    assert listed("A text in one prediction") == names(passed)


def test_a_completion_calls_no_more_files(
    watched_threads: CalledFiles, serve: Callable[..., tuple[Client, Service]]
) -> None:
    client, _ = serve({"lstm": language_pipeline()})
    body = {"model": "lstm", "prompt": "The", "max_tokens": 4}
    assert client.post("/v1/completions", body).status == 200
    with watched_threads.recording():
        assert client.post("/v1/completions", body).status == 200
    check("files of `serving` of one completion", len(watched_threads.files))


def test_the_page_has_these_figures() -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| ([\d,]+) \| [\d,]+ \|$", text, re.MULTILINE)
    assert {name: int(number.replace(",", "")) for name, number in rows} == MAX_FIGURES
