"""A plot of the ratios of `cells.py`: a row of dots for each shape, and a line at its target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

INK = "#808890"
"""A color that is readable on white and on black."""
COLORS = ("#e0632a", "#3b8fd1", "#2fa37c", "#c99a1b", "#a06bc9", "#d1568f", "#7fa012", "#c23b3b")
MARKERS = ("o", "s", "D", "^")
TICKS = (0.5, 0.7, 1.0, 1.3, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0)

Shape = tuple[int, int, int, int]


def draw(
    ratios: Mapping[Shape, Mapping[str, float]], targets: Mapping[Shape, float], path: Path, *, title: str
) -> None:
    """Draw the ratios of cells by shape. Equal ratios give equal files."""
    names = list(dict.fromkeys(name for row in ratios.values() for name in row))
    with rc_context({"svg.hashsalt": "ensue", "text.color": INK, "axes.edgecolor": INK, "font.size": 9}):
        figure = Figure(figsize=(8.2, 1.6 + 0.75 * len(ratios)), dpi=120, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.subplots()
        axes.set(xscale="log", title=title, ylim=(len(ratios) - 0.4, -0.6))
        axes.patch.set_alpha(0)
        for row, (shape, cells) in enumerate(ratios.items()):
            axes.axhspan(row - 0.42, row + 0.42, color=INK, alpha=0.1, linewidth=0)
            for name, ratio in cells.items():
                height = row + 0.7 * ((names.index(name) + 0.5) / len(names) - 0.5)
                axes.plot(ratio, height, linestyle="none", markersize=6, **style(names, name))
            if shape in targets:
                axes.plot([targets[shape]] * 2, [row - 0.42, row + 0.42], color=INK, linewidth=2)
        axes.set_yticks(range(len(ratios)), ["T {}, B {}, {} → {}".format(*shape) for shape in ratios])
        axes.set_xlabel("time per multiply-add of the matrix products, torch.nn.LSTM = 1; lines: targets", color=INK)
        axes.xaxis.set_major_locator(FixedLocator(TICKS))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} ×"))
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, 0.8), max(high, 1.7))
        axes.tick_params(colors=INK, length=0)
        axes.grid(axis="x", color=INK, alpha=0.25)
        axes.spines[:].set_visible(False)
        figure.legend(handles=handles(names), loc="outside lower center", ncols=6, frameon=False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def style(names: Sequence[str], name: str) -> dict[str, Any]:
    """Return the color and the marker of a name."""
    number = names.index(name)
    return {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number // len(COLORS) % len(MARKERS)]}


def handles(names: Sequence[str]) -> list[Line2D]:
    return [Line2D([], [], linestyle="none", label=name, **style(names, name)) for name in names]
