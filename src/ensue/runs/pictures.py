"""Pictures of a run, and plots of values over the words of a text, drawn with matplotlib."""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.errors import EnsueError, quote
from ensue.runs.reporter import Reporter

FONT = "DejaVu Sans"
FALLBACK_FONTS = (
    "Noto Sans CJK JP", "Noto Sans CJK SC", "Source Han Sans", "WenQuanYi Zen Hei", "Droid Sans Fallback", "IPAGothic",
    "Hiragino Sans", "PingFang SC", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Arial Unicode MS", "Unifont",
)  # fmt: skip
"""Fonts for characters that are missing in `FONT`, which matplotlib installs. Only installed fonts are used."""

MAX_INCHES = 11.5
"""The maximum width of a picture: on a page of 740 pixels, letters of 9 points then have 8 pixels."""


@contextmanager
def picture(path: Path, size: tuple[float, float]) -> Iterator[Any]:
    """Yield a matplotlib figure of this size in inches, which is written to `path` at the end of a `with` block.

    A width above `MAX_INCHES` is reduced to it, and the height in proportion. Equal drawings have equal files. A `$`
    does not begin a formula. A character that all fonts lack is drawn as a box, without a warning.
    """
    _import_matplotlib()
    from matplotlib import rc_context  # noqa: PLC0415 (slow to import)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with (
        rc_context({"text.parse_math": False, "font.family": _find_fonts(), "svg.hashsalt": "ensue"}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support")
        inches = [length * min(1.0, MAX_INCHES / size[0]) for length in size]
        figure = Figure(figsize=(inches[0], inches[1]), dpi=120, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)


def _find_fonts() -> list[str]:
    from matplotlib import font_manager  # noqa: PLC0415

    installed = set(font_manager.get_font_names())
    return [FONT, *(name for name in FALLBACK_FONTS if name in installed)]


def _import_matplotlib() -> None:
    """Import matplotlib without the backend of `MPLBACKEND`, since the backend that Jupyter sets may be missing."""
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


def make_optional(path: Path, make: Callable[[], object], reporter: Reporter) -> None:
    """Call `make`, which writes a picture or the card of a finished run. If `make` fails, the reporter gets a note."""
    try:
        make()
    except Exception as error:  # the run is complete without the file
        reason = " ".join(str(error).split()) or type(error).__name__
        reporter.noted(f"{path.name} cannot be written: {quote(reason, 200)[1:-1]}")


def draw_curve(records: Iterable[dict[str, Any]], path: Path, *, title: str, score: str) -> None:
    """Draw the training loss and the validation's `score` over the steps, from the records of metrics.jsonl."""
    train, valid = list[tuple[int, float]](), list[tuple[int, Any, bool]]()
    for record in records:
        if record["kind"] == "train":
            train.append((record["step"], record["loss"]))
        elif record["kind"] == "valid":
            valid.append((record["step"], record["scores"].get(score), record["best"]))
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
        _draw_scores(right, [point for point in valid if point[1] is not None])
        for side in (axes, right):
            side.spines["top"].set_visible(False)
            side.spines["right"].set_visible(right is not axes)
        lines = [*axes.lines, *(right.lines if right is not axes else [])]
        if lines:
            axes.legend(handles=lines, frameon=False, loc="best" if right is axes else "center right")


def _draw_scores(axes: Any, valid: list[tuple[int, float, bool]]) -> None:
    if not valid:
        return
    steps, scores, _ = zip(*valid, strict=True)
    axes.plot(steps, scores, color="#1f4e79", marker="o", markersize=4, label="validation")
    step, best, _ = next((entry for entry in reversed(valid) if entry[2]), valid[-1])
    above = {"xytext": (0, 9), "textcoords": "offset points", "ha": "center"}
    axes.annotate(f"{best:.3f}", (step, best), **above, fontsize=9, color="#1f4e79", fontweight="bold")


LINE_COLORS = ("#0b7285", "#c2255c", "#d9730d", "#5f3dc4", "#868e96", "#2b8a3e")
"""The colors of lines, as on the inspection pages."""
MAX_WORD_CHARACTERS = 20
"""The maximum length of a word at an axis; longer words are shortened."""


def axes_of(ax: Any, width: float, height: float) -> Any:
    """Return the axes `ax`; if `ax` is None, new axes of pyplot with this width and height in inches."""
    if ax is not None:
        return ax
    _import_matplotlib()
    from matplotlib import pyplot as plt  # noqa: PLC0415 (slow to import)

    return plt.subplots(figsize=(min(width, MAX_INCHES), height), layout="constrained")[1]


def literal_text_options() -> dict[str, Any]:
    """Return matplotlib's options for text in which a `$` does not begin a formula."""
    return {"parse_math": False, "fontfamily": _find_fonts()}


class LinePlot(NamedTuple):
    """A line plot of values over words, with a line for each name in `values`. `label` is for the axis of values."""

    words: Sequence[str]
    values: Mapping[str, Sequence[float] | NDArray[Any]]
    label: str = ""

    def draw(self, ax: Any = None, title: str = "") -> Any:
        """Draw on the axes `ax`, or on new axes, and return the axes."""
        axes = axes_of(ax, 2.0 + 0.35 * len(self.words), 3.2)
        for index, (name, values) in enumerate(self.values.items()):
            color = LINE_COLORS[index % len(LINE_COLORS)]
            axes.plot(range(len(values)), values, marker="o", markersize=3, linewidth=1.3, color=color, label=name)
        _label_words(axes, self.words)
        axes.set_title(title, **literal_text_options())
        axes.set_ylabel(self.label)
        axes.grid(axis="y", alpha=0.25)
        if len(self.values) > 1:
            axes.legend(frameon=False, prop={"family": _find_fonts(), "size": 9})
        return axes


class HeatMap(NamedTuple):
    """A heat map of attention weights (R, C), from the words of `rows` to the words of `columns`."""

    rows: Sequence[str]
    columns: Sequence[str]
    weights: NDArray[Any]

    def draw(self, ax: Any = None, title: str = "") -> Any:
        """Draw on the axes `ax`, or on new axes, and return the axes."""
        axes = axes_of(ax, 2.0 + 0.3 * len(self.columns), min(1.6 + 0.3 * len(self.rows), MAX_INCHES))
        highest = max(float(np.max(self.weights)), 1e-9)
        image = axes.imshow(self.weights, cmap="Purples", vmin=0.0, vmax=highest, aspect="auto")
        axes.figure.colorbar(image, ax=axes, label="attention")
        axes.set(xlabel="to", ylabel="from")
        _label_words(axes, self.columns)
        axes.set_yticks(range(len(self.rows)), _shorten(self.rows), fontsize=9, **literal_text_options())
        axes.set_title(title, **literal_text_options())
        return axes


def _label_words(axes: Any, words: Sequence[str]) -> None:
    """Label the horizontal axis with words, at a slant if a word has more than two characters."""
    labels = _shorten(words)
    slanted = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"} if max(map(len, labels), default=0) > 2 else {}
    axes.set_xticks(range(len(words)), labels, fontsize=9, **slanted, **literal_text_options())


def _shorten(words: Sequence[str]) -> list[str]:
    """Return words as labels of an axis: line ends, tabs and blank words are visible, and long words shortened."""
    visible = (word.replace("\n", "↵").replace("\t", "⇥") if word.strip(" ") else "␣" * len(word) for word in words)
    return [w[: MAX_WORD_CHARACTERS - 1] + "…" if len(w) > MAX_WORD_CHARACTERS else w for w in visible]
