"""Pictures of a run. Names are drawn as they are written, and a picture that fails does not end the run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ensue.parsing import shown
from ensue.runs.reporter import Reporter

FONT = "DejaVu Sans"
FALLBACKS = (
    "Noto Sans CJK JP", "Noto Sans CJK SC", "Source Han Sans", "WenQuanYi Zen Hei", "Droid Sans Fallback", "IPAGothic",
    "Hiragino Sans", "PingFang SC", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Arial Unicode MS", "Unifont",
)  # fmt: skip
"""Fonts for characters that matplotlib's own font does not have. Those that are installed are used."""


@contextmanager
def picture(path: Path, size: tuple[float, float]) -> Iterator[Any]:
    """A matplotlib figure of this size in inches, to draw on; it is written to `path` at the end.

    The same drawing gives the same file. A `$` is a dollar sign. A character that no font has is drawn as a box,
    without a warning.
    """
    _import_matplotlib()
    from matplotlib import font_manager, rc_context  # noqa: PLC0415 (slow to import)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    installed = set(font_manager.get_font_names())
    fonts = [FONT, *(name for name in FALLBACKS if name in installed)]
    with (
        rc_context({"text.parse_math": False, "font.family": fonts, "svg.hashsalt": "ensue"}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support")
        figure = Figure(figsize=size, dpi=120, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)


def _import_matplotlib() -> None:
    """Imports it, whatever `MPLBACKEND` names: a file needs no backend, and Jupyter names one that may be missing."""
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib as mpl  # noqa: PLC0415

        if backend is not None:
            with suppress(ValueError):
                mpl.rcParams["backend"] = backend
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend


def made(path: Path, make: Callable[[], object], reporter: Reporter) -> None:
    """Makes a picture or the card of a finished run. If that fails, the reporter gets a note."""
    try:
        make()
    except Exception as error:  # whatever it is, the run is good
        reason = " ".join(str(error).split()) or type(error).__name__
        reporter.noted(f"{path.name} could not be made: {shown(reason, 200)[1:-1]}")


def draw_curve(records: list[dict[str, Any]], path: Path, *, title: str, score: str) -> None:
    """Training loss and the validation's `score` over the steps, from the records of metrics.jsonl."""
    train = [(r["step"], r["loss"]) for r in records if r["kind"] == "train"]
    valid = [r for r in records if r["kind"] == "valid"]
    name, same_scale = score.replace("_", " ").replace("f1", "F1"), "nats" in score
    with picture(path, (7.2, 4.2)) as figure:
        axes = figure.add_subplot()
        axes.set(xlabel="steps", ylabel=name if same_scale else "training loss in nats", title=title)
        axes.grid(alpha=0.25)
        if train:
            axes.plot(*zip(*train, strict=True), color="#9db4c8", linewidth=1.2, label="training (with dropout)")
        right = axes
        if valid and not same_scale:
            right = axes.twinx()
            right.set_ylabel(f"validation {name}")
        _draw_scores(right, [(r["step"], r["scores"][score], r["best"]) for r in valid if score in r["scores"]])
        for drawn in (axes, right):
            drawn.spines["top"].set_visible(False)
            drawn.spines["right"].set_visible(right is not axes)
        lines = [*axes.lines, *(right.lines if right is not axes else [])]
        if lines:
            labels = [str(line.get_label()) for line in lines]
            axes.legend(lines, labels, frameon=False, loc="best" if right is axes else "center right")


def _draw_scores(axes: Any, valid: list[tuple[int, float, bool]]) -> None:
    """Draws the validation scores, and writes the number of the best one beside it."""
    if not valid:
        return
    steps, scores, _ = zip(*valid, strict=True)
    axes.plot(steps, scores, color="#1f4e79", marker="o", markersize=4, label="validation")
    step, best, _ = next((entry for entry in reversed(valid) if entry[2]), valid[-1])
    axes.annotate(
        f"{best:.3f}",
        (step, best),
        xytext=(0, 9),
        textcoords="offset points",
        ha="center",
        fontsize=9,
        color="#1f4e79",
        fontweight="bold",
    )
