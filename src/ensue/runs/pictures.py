"""Pictures of a run and of numbers about a text, with names as written; one that fails does not end the run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.errors import EnsueError
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
    from matplotlib import rc_context  # noqa: PLC0415 (slow to import)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with (
        rc_context({"text.parse_math": False, "font.family": _fonts(), "svg.hashsalt": "ensue"}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support")
        figure = Figure(figsize=size, dpi=120, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)


def _fonts() -> list[str]:
    from matplotlib import font_manager  # noqa: PLC0415

    installed = set(font_manager.get_font_names())
    return [FONT, *(name for name in FALLBACKS if name in installed)]


def _import_matplotlib() -> None:
    """Imports it, whatever `MPLBACKEND` names: a file needs no backend, and Jupyter names one that may be missing."""
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        if find_spec("matplotlib") is None:
            raise EnsueError("pictures need matplotlib: pip install 'ensue[pictures]'")
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


WIDEST = 16.0
"""The most inches of a picture of words."""
TONES = ("#0b7285", "#c2255c", "#d9730d", "#5f3dc4", "#868e96", "#2b8a3e")
"""The colors of lines, as on pages."""
LONGEST_WORD = 20


def axes_of(ax: Any, width: float, height: float) -> Any:
    """The axes `ax`; if that is None, new ones of pyplot, this many inches wide and high."""
    if ax is not None:
        return ax
    _import_matplotlib()
    from matplotlib import pyplot as plt  # noqa: PLC0415 (slow to import)

    return plt.subplots(figsize=(min(width, WIDEST), height), layout="constrained")[1]


def written() -> dict[str, Any]:
    """The options of a text in axes that is drawn as it is written: a `$` is a dollar sign."""
    return {"parse_math": False, "fontfamily": _fonts()}


class Lines(NamedTuple):
    """Values over words: a line for each name. `what` is measured."""

    words: Sequence[str]
    values: Mapping[str, Sequence[float] | NDArray[Any]]
    what: str = ""

    def draw(self, ax: Any = None, title: str = "") -> Any:
        """Draws on the axes `ax`, or new ones, and returns them."""
        axes = axes_of(ax, 2.0 + 0.35 * len(self.words), 3.2)
        for number, (name, values) in enumerate(self.values.items()):
            color = TONES[number % len(TONES)]
            axes.plot(range(len(values)), values, marker="o", markersize=3, linewidth=1.3, color=color, label=name)
        _words_below(axes, self.words)
        axes.set_title(title, **written())
        axes.set_ylabel(self.what)
        axes.grid(axis="y", alpha=0.25)
        if len(self.values) > 1:
            axes.legend(frameon=False, prop={"family": _fonts(), "size": 9})
        return axes


class Grid(NamedTuple):
    """Weights (R, C): what each of the `rows` looks at among the `columns`."""

    rows: Sequence[str]
    columns: Sequence[str]
    weights: NDArray[Any]

    def draw(self, ax: Any = None, title: str = "") -> Any:
        """Draws on the axes `ax`, or new ones, and returns them."""
        axes = axes_of(ax, 2.0 + 0.3 * len(self.columns), min(1.6 + 0.3 * len(self.rows), WIDEST))
        axes.imshow(self.weights, cmap="Purples", vmin=0.0, vmax=max(float(np.max(self.weights)), 1e-9), aspect="auto")
        _words_below(axes, self.columns)
        axes.set_yticks(range(len(self.rows)), _short(self.rows), fontsize=9, **written())
        axes.set_title(title, **written())
        return axes


def _words_below(axes: Any, words: Sequence[str]) -> None:
    shown = _short(words)
    slanted = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"} if max(map(len, shown), default=0) > 2 else {}
    axes.set_xticks(range(len(words)), shown, fontsize=9, **slanted, **written())


def _short(words: Sequence[str]) -> list[str]:
    """Words as they stand at an axis: blanks can be seen, and long ones are cut."""
    seen = (word.replace("\n", "↵").replace("\t", "⇥") if word.strip(" ") else "␣" * len(word) for word in words)
    return [word[: LONGEST_WORD - 1] + "…" if len(word) > LONGEST_WORD else word for word in seen]
