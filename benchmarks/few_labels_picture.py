"""The picture of docs/few-labels.md, from the two tables of docs/benchmarks.md.

python benchmarks/few_labels_picture.py
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from cell_picture import COLORS, INK, MARKERS
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

DOCS = Path(__file__).resolve().parents[1] / "docs"
SECTION = "### 50 to 1,000 texts"
Curves = dict[str, dict[int, float]]


def read() -> dict[str, Curves]:
    """Return for each data set and method the mean accuracy by the number of texts."""
    section = (DOCS / "benchmarks.md").read_text(encoding="utf-8").partition(SECTION)[2].partition("\n### ")[0]
    panels: dict[str, Curves] = defaultdict(lambda: defaultdict(dict))
    methods: list[str] = []
    for line in section.splitlines():
        name, size, *cells = (cell.strip() for cell in line.split("|")[1:-1]) if line.startswith("|") else ("", "")
        if size == "texts":
            methods = [re.sub("^and ", "TF-IDF and ", cell.replace("`", "")) for cell in cells]
        for method, cell in zip(methods, cells, strict=False):
            if value := re.match(r"\W*(\d+\.\d)\W* ±", cell):
                panels[name][method][int(size.replace(",", ""))] = float(value[1])
    return panels


def draw(panels: dict[str, Curves], path: Path) -> None:
    """Draw a panel for each data set; equal values give equal files."""
    methods = list(max(panels.values(), key=len))
    with rc_context({"svg.hashsalt": "ensue", "text.color": INK, "axes.edgecolor": INK, "font.size": 10}):
        figure = Figure(figsize=(7.2, 9.6), dpi=120, layout="constrained")
        figure.patch.set_alpha(0)
        for place, (axes, (name, curves)) in enumerate(zip(figure.subplots(4, 2).flat, panels.items(), strict=True)):
            axes.patch.set_alpha(0)
            for method, curve in curves.items():
                number = methods.index(method)
                width = 2 if number < 2 else 1
                style = {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}
                style["linestyle"] = "dashed" if number >= len(COLORS) else "solid"
                axes.plot(list(curve), list(curve.values()), label=method, markersize=4, linewidth=width, **style)
            sizes = sorted({size for curve in curves.values() for size in curve})
            axes.set(xscale="log", title=name)
            axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xlabel("labeled texts" if place > 5 else "", color=INK)
            axes.set_ylabel("" if place % 2 else "accuracy, %", color=INK)
            axes.tick_params(colors=INK, length=0)
            axes.grid(color=INK, alpha=0.25)
            axes.spines[:].set_visible(False)
        fullest = max(figure.axes, key=lambda axes: len(axes.lines))
        figure.legend(*fullest.get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=3)
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(read(), DOCS / "few-labels.svg")
