"""Pictures may have any names, are legible, and their failures do not end a run."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensue.extensions.error_analysis.report import ThresholdScores
from ensue.extensions.error_analysis.report import _draw as draw_thresholds
from ensue.extensions.frames.frame_prediction.model import draw_series
from ensue.extensions.gradients.gradients import EncoderGradients, draw_gradients
from ensue.runs.pictures import HeatMap, LinePlot, draw_curve
from ensue.tasks.contract.data_set import draw_confusion
from training.tiny import run_tiny, tiny_recipe
from training.tiny_texts import Listener


def records(scores: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"kind": "train", "step": 1, "loss": 2.0}, {"kind": "valid", "step": 2, "scores": scores, "best": True}]


def test_names_with_dollar_signs_are_not_parsed_as_formulas(tmp_path: Path) -> None:
    draw_confusion(["$5^$", "other"], [[3, 1], [0, 2]], tmp_path / "confusion.png", title=r"$\frac{$")
    assert (tmp_path / "confusion.png").stat().st_size > 1000


@pytest.mark.parametrize(("function", "file"), [("draw_curve", "curve.png"), ("write_card", "README.md")])
def test_failures_of_picture_and_card_become_notes(
    function: str, file: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise ValueError("no\nroom")

    monkeypatch.setattr(f"ensue.training.run.{function}", broken)
    notes = Listener()
    assert run_tiny(tiny_recipe(text, steps=2), tmp_path / "run", reporter=notes).reason == "finished"
    assert notes.notes == [f"{file} cannot be written: no room"]


def test_a_run_without_matplotlib_is_complete(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.training.run.draw_curve", draw_curve)
    monkeypatch.setattr("ensue.runs.pictures.find_spec", lambda name: None)
    notes = Listener()
    assert run_tiny(tiny_recipe(text, steps=2), tmp_path / "run", reporter=notes).reason == "finished"
    assert notes.notes == ["curve.png cannot be written: pictures need matplotlib: pip install 'ensue[pictures]'"]
    assert "curve.png" not in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


LABELS = [f"a long label {number}" for number in range(60)]
SCORES = [ThresholdScores(threshold / 10, 0.9, 0.5, 0.6) for threshold in range(10)]
NORMS = EncoderGradients("lstm", [1.0, 2.0], [2.0, 1.0])


def _saved(plot: Any, path: Path) -> None:
    plot.draw().figure.savefig(path)


DRAWN: dict[str, Callable[[Path], object]] = {
    "curve": lambda path: draw_curve(records({"accuracy": 0.5}), path, title="t", score="accuracy"),
    "confusion": lambda path: draw_confusion(LABELS, np.eye(60, dtype=int).tolist(), path, title="t"),
    "few labels": lambda path: draw_confusion(LABELS[:15], np.eye(15, dtype=int).tolist(), path, title="t"),
    "thresholds": lambda path: draw_thresholds(SCORES, path),
    "series": lambda path: draw_series(path, [np.eye(9, 3)], prompt_frames=2, columns=["a", "b", "c"]),
    "many features": lambda path: draw_series(path, [np.eye(9, 80)], prompt_frames=2),
    "gradients": lambda path: draw_gradients([NORMS] * 3, path, steps=5),
    "words": lambda path: _saved(LinePlot(LABELS, {"a": [0.5] * 60, "b": [1] * 60}, "nats"), path),
    "attention": lambda path: _saved(HeatMap(LABELS, LABELS, np.eye(60)), path),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_letters_are_legible_and_axes_have_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is 740 pixels wide. Colors have a scale, and numbers at an axis have equally many decimals."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (slow to import)
    from matplotlib.text import Text  # noqa: PLC0415

    drawn: list[Any] = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *args, **options: drawn.append(self) or save(self, *args, **options)
    )
    DRAWN[name](tmp_path / "picture.png")
    (figure,) = drawn
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    assert min(text.get_fontsize() for text in texts) * min(1, 740 / (72 * figure.get_figwidth())) >= 8
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            numbers = [
                text.get_text() for text in axis.get_ticklabels() if re.fullmatch(r"[-−]?[\d.]+", text.get_text())
            ]
            assert len({len(number.partition(".")[2]) for number in numbers}) <= 1
    assert any(axes.get_xlabel() for axes in figure.axes) or name == "words"
    assert any(axes.get_ylabel() for axes in figure.axes)
    assert sum(bool(axes.images) for axes in figure.axes) == sum(hasattr(axes, "_colorbar") for axes in figure.axes)
