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
    """`curves` have for each model and number of labels the accuracies in per cent; equal ones give equal files."""
    with rc_context({"svg.hashsalt": "ensue", "text.color": INK, "axes.edgecolor": INK, "font.size": 9}):
        figure = Figure(figsize=(6.4, 3.6), dpi=120, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        for number, (title, found) in enumerate(curves.items()):
            sizes = sorted(found)
            style = {"color": COLORS[number], "marker": MARKERS[number % len(MARKERS)]}
            axes.plot(sizes, [statistics.mean(found[size]) for size in sizes], label=title, markersize=5, **style)
            runs = [(size, value) for size in sizes for value in found[size]]
            axes.plot(*zip(*runs, strict=True), linestyle="none", markersize=2.5, alpha=0.6, **style)
        sizes = sorted({size for found in curves.values() for size in found})
        axes.set(xscale="log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("reviews with a label", color=INK)
        axes.set_ylabel("accuracy, %", color=INK)
        axes.tick_params(colors=INK, length=0)
        axes.grid(color=INK, alpha=0.25)
        axes.spines[:].set_visible(False)
        axes.legend(frameon=False, loc="lower right")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
