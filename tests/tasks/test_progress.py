"""`progress=` of predict and evaluate reports rising shares for each kind of model and changes no result."""

import io
import lzma
from pathlib import Path
from typing import Any

import pytest

from ensue.extension import entries
from ensue.library import load
from ensue.runs import reporter
from ensue.runs.reporter import ProgressBar, Reporter
from ensue.tasks import TASKS, task_entry
from ensue.tasks.contract import chunks
from ensue.tasks.contract.chunks import report_progress
from kept_runs.make import unpacked

TEXTS = ["Anna sees Lima .", "the old boat", "calm"] * 40


class Shares(Reporter):
    def __init__(self) -> None:
        self.reports: list[tuple[str, float]] = []

    def working(self, what: str, share: float) -> None:
        self.reports.append((what, share))

    def check(self, what: str, *, minimum: int) -> None:
        names, shares = zip(*self.reports, strict=True)
        assert {*names} == {what}
        assert (shares[0], shares[-1]) == (0.0, 1.0)
        assert list(shares) == sorted(shares)
        assert minimum <= len(shares) <= 2 + 1 / chunks.MIN_PROGRESS_STEP


def test_every_pipeline_has_the_argument_progress() -> None:
    for task in {*TASKS, *entries("task")}:
        pipeline = task_entry(task).pipeline_class
        for name in ("predict", "evaluate"):
            if hasattr(pipeline, name):
                assert hasattr(getattr(pipeline, name), "__wrapped__"), (task, name)


@pytest.mark.parametrize(
    ("run", "name", "row"),
    [
        ("tag-lstm-crf", "data.conll", "Anna NNP B-PER\nsees VBZ O\n\n"),
        ("classify-lstm", "data.tsv", "pos\tA calm film.\n"),
        ("char-lstm", "data.txt", "The sea was calm again.\n"),
    ],
)
def test_the_share_of_a_file_rises(run: str, name: str, row: str, tmp_path: Path) -> None:
    unpacked(run, tmp_path)
    model: Any = load(tmp_path / run, device="cpu")
    (tmp_path / name).write_text("mood\ttext\n" * (run == "classify-lstm") + row * 100)
    shares = Shares()
    assert model.evaluate(tmp_path / name, progress=shares) == model.evaluate(tmp_path / name)
    shares.check("evaluate", minimum=20 if run != "char-lstm" else 3)


def test_the_share_of_a_list_rises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.tasks.labeling.pipeline.CHUNK_WORDS", 20)
    unpacked("tag-lstm-crf", tmp_path)
    model: Any = load(tmp_path / "tag-lstm-crf", device="cpu")
    expected = model.predict(TEXTS)
    for arguments, named in (((TEXTS,), {}), ((), {"texts": TEXTS}), ((iter(TEXTS),), {})):
        shares = Shares()
        assert model.predict(*arguments, **named, progress=shares) == expected
        shares.check("predict", minimum=20)
    with pytest.raises(Exception, match="predict takes a list of texts"):
        model.predict("a text", progress=shares)
    assert shares.reports[-1] == ("predict", 1.0)
    assert chunks.ON_PROGRESS.get() is None


def test_a_compressed_file_reports_its_start_and_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(b"a line\n" * 1000))
    shares = Shares()
    with report_progress("evaluate", tmp_path / "a.txt.xz", shares):
        advanced = chunks.ON_PROGRESS.get()
        assert advanced is not None
        advanced("bytes", 7000)
    assert shares.reports == [("evaluate", 0.0), ("evaluate", 1.0)]


def test_true_shows_a_bar_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", shown := io.StringIO())
    monkeypatch.setattr(reporter, "SECONDS_BETWEEN_REFRESHES", 0.0)
    bar = ProgressBar()
    for share in (0.0, 0.5, 1.0):
        bar.working("predict", share)
    empty, half, end, last = shown.getvalue().removeprefix("\r").split("\r")
    assert (empty.split(), half.split()) == (["predict", "0%"], ["predict", "━" * 12, "50%"])
    assert end.isspace()
    assert last == ""
    with report_progress("predict", None, None):
        assert chunks.ON_PROGRESS.get() is None
