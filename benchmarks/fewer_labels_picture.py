"""The accuracies of `fewer_labels.py` as a picture: a curve over the number of labels for each model."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from cell_picture import COLORS, INK, MARKERS
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator


def draw(curves: Mapping[str, Mapping[int, Sequence[float]]], path: Path) -> None:
    """Draw accuracies in percent by model and number of labels. Equal accuracies give equal files."""
    with rc_context({"svg.hashsalt": "ensue", "text.color": INK, "axes.edgecolor": INK, "font.size": 9}):
        figure = Figure(figsize=(6.4, 3.6), dpi=120, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        for number, (title, accuracies) in enumerate(curves.items()):
            sizes = sorted(accuracies)
            style = {"color": COLORS[number], "marker": MARKERS[number % len(MARKERS)]}
            axes.plot(sizes, [statistics.mean(accuracies[size]) for size in sizes], label=title, markersize=5, **style)
            runs = [(size, value) for size in sizes for value in accuracies[size]]
            axes.plot(*zip(*runs, strict=True), linestyle="none", markersize=2.5, alpha=0.6, **style)
        sizes = sorted({size for accuracies in curves.values() for size in accuracies})
        axes.set(xscale="log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("labeled reviews", color=INK)
        axes.set_ylabel("accuracy, %", color=INK)
        axes.tick_params(colors=INK, length=0)
        axes.grid(color=INK, alpha=0.25)
        axes.spines[:].set_visible(False)
        axes.legend(frameon=False, loc="lower right")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
