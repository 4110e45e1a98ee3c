"""Pictures with any names, last of all, and none that costs a run."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from ensue.runs.pictures import draw_curve
from ensue.runs.reporter import Reporter
from ensue.tasks.contract.data_set import draw_confusion
from training.tiny import run_tiny, some_slow, tiny_recipe

NAMES = ["$1_$2", "$5^$", r"\frac{", "東京", "مرحبا", "a\nb", "😀"]


def records(scores: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"kind": "train", "step": 1, "loss": 2.0}, {"kind": "valid", "step": 2, "scores": scores, "best": True}]


@pytest.mark.slow
@pytest.mark.parametrize("title", some_slow(NAMES, "東京"))
def test_any_name_can_be_drawn(title: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_curve(records({"accuracy": 0.5}), tmp_path / "curve.png", title=title, score="accuracy")
        draw_confusion([title, "other"], [[3, 1], [0, 2]], tmp_path / "confusion.png", title=title)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "confusion.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_score_that_the_validations_do_not_have(tmp_path: Path) -> None:
    draw_curve(records({"bleu": 0.5}), tmp_path / "curve.png", title="t", score="accuracy")
    assert (tmp_path / "curve.png").exists()


class Notes(Reporter):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def noted(self, note: str) -> None:
        self.notes.append(note)


@pytest.mark.parametrize(("what", "file"), [("draw_curve", "curve.png"), ("write_card", "README.md")])
def test_what_cannot_be_drawn_or_written_at_the_end_is_a_note(
    what: str, file: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise ValueError("no\nroom")

    monkeypatch.setattr(f"ensue.training.run.{what}", broken)
    notes = Notes()
    assert run_tiny(tiny_recipe(text, steps=2), tmp_path / "run", reporter=notes).reason == "finished"
    assert notes.notes == [f"{file} cannot be written: no room"]


def test_a_run_without_matplotlib_is_complete(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.training.run.draw_curve", draw_curve)
    monkeypatch.setattr("ensue.runs.pictures.find_spec", lambda name: None)
    notes = Notes()
    assert run_tiny(tiny_recipe(text, steps=2), tmp_path / "run", reporter=notes).reason == "finished"
    assert notes.notes == ["curve.png cannot be written: pictures need matplotlib: pip install 'ensue[pictures]'"]
    assert "curve.png" not in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
