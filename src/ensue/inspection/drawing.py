"""Drawings over the words of a text, as inline SVG: cells with numbers and lines. They know nothing of models.

All drawings of a page that share `WordColumns` have a word at the same place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ensue.inspection.markup import clipped, escaped, plain, width_of

GUTTER = 104
"""Pixels at the left, for names."""
ROW = 22
HEAD = 26
STRONGEST = 0.78
"""Opacity of the color of the largest number."""
ROOMY = 18
"""Columns up to which a matrix has large cells."""


class WordColumns:
    """The places of words side by side. `key` distinguishes the words of two texts."""

    def __init__(self, words: Sequence[str], *, key: str = "") -> None:
        self.words, self.key = [clipped(word, 60) for word in words], key
        self.shown = [clipped(word) for word in words]
        self.widths = [max(44.0, width_of(word) + 16) for word in self.shown]
        self.lefts = list(accumulate(self.widths, initial=0.0))
        self.width = self.lefts[-1]

    def __len__(self) -> int:
        return len(self.words)

    def mid(self, column: int) -> float:
        """The middle of a column, in pixels."""
        return self.lefts[column] + self.widths[column] / 2 - 1

    def group(self, column: int, height: float, content: str) -> str:
        """A column, with the word on top and `content` below, marked for the script."""
        return (
            f'<g data-t="{self.key}{column}"><rect class="back" x="{self.lefts[column]:.1f}" rx="3"'
            f' width="{self.widths[column] - 2:.1f}" height="{height:.0f}"/>'
            f'<text class="word mid" x="{self.mid(column):.1f}" y="17">{escaped(self.shown[column])}</text>'
            f"{content}</g>"
        )


def figure(gutter: str, drawing: str, *, width: float, height: float, name: str, aligned: bool = False) -> str:
    """A drawing that may be wider than the page, a part that stays at its left, and its name for screen readers."""
    scroll = "scroll aligned" if aligned else "scroll"
    return (
        f'<figure><svg class="gutter" width="{GUTTER}" height="{height:.0f}" aria-hidden="true">{gutter}</svg>'
        f'<div class="{scroll}"><svg width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escaped(name)}">'
        f"{drawing}</svg></div></figure>"
    )


def row_names(names: Sequence[str], top: float = HEAD) -> str:
    """The names of rows, at the left of their cells."""
    return "".join(
        f'<text class="end" x="{GUTTER - 8}" y="{top + ROW * row + 15:.0f}">{escaped(clipped(name, 14))}</text>'
        for row, name in enumerate(names)
    )


def column_names(names: Sequence[str], side: float, foot: float) -> str:
    """The names of columns of width `side`, slanted, above them."""
    return "".join(
        f'<text transform="translate({side * (column + 0.5):.0f} {foot - 6:.0f}) rotate(-50)">'
        f"{escaped(clipped(name, 12))}</text>"
        for column, name in enumerate(names)
    )


def cell(value: float, most: float, *, x: float, y: float, width: float, title: str) -> str:
    """A number on a color: warm above zero, cool below, and stronger the nearer it is to `most`."""
    kind = "warm" if value > 0 else "cool"
    strength = STRONGEST * min(1.0, abs(value) / most) if most else 0.0
    return (
        f'<rect class="{kind}" {_inside(x, y, width)} fill-opacity="{strength:.3f}">'
        f"<title>{escaped(title)}</title></rect>"
        f'<text class="small mid" x="{x + width / 2 - 1:.1f}" y="{y + 15:.1f}">{plain(value, 1)}</text>'
    )


def never(*, x: float, y: float, width: float, title: str) -> str:
    """A cell without a number, for what is impossible."""
    mid, half = x + width / 2 - 1, y + ROW / 2
    return (
        f'<rect class="nothing" {_inside(x, y, width)}><title>{escaped(title)}</title></rect>'
        f'<path class="cross" d="M{mid - 3:.1f} {half - 3:.1f}l6 6m0 -6l-6 6"/>'
    )


def frame(*, x: float, y: float, width: float) -> str:
    """A frame around a cell."""
    return f'<rect class="path" {_inside(x, y, width)}/>'


def _inside(x: float, y: float, width: float) -> str:
    return f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="{width - 4:.1f}" height="{ROW - 2}" rx="2"'


def lines(series: Mapping[str, NDArray[np.float64]], columns: WordColumns, *, name: str) -> str:
    """Numbers over the words, a line for each name."""
    height, count = max(100, 17 * len(series) + 8), len(columns)
    low = min(float(values[:count].min()) for values in series.values())
    high = max(float(values[:count].max()) for values in series.values())
    ticks = [tick / 10 for tick in range(math.floor(10 * low), math.ceil(10 * high) + 1)]
    ticks = ticks if len(ticks) > 1 else [ticks[0], ticks[0] + 0.1]

    def y(value: float) -> float:
        return HEAD + 6 + (height - 12) * (ticks[-1] - value) / (ticks[-1] - ticks[0])

    gutter = [
        f'<text class="end tone s{order}" x="{GUTTER - 30}" y="{HEAD + 17 + 17 * order}">{escaped(kind)}</text>'
        for order, kind in enumerate(series)
    ]
    drawing = []
    for column, word in enumerate(columns.words):
        title = escaped("\n".join([word, *(f"{kind} {values[column]:.4f}" for kind, values in series.items())]))
        place = f'x="{columns.lefts[column]:.1f}" width="{columns.widths[column]:.1f}" height="{HEAD + height}"'
        drawing.append(
            columns.group(column, HEAD + height, f'<rect class="nothing" {place}><title>{title}</title></rect>')
        )
    for tick in ticks[:: math.ceil(len(ticks) / 6)]:
        gutter.append(f'<text class="end small faint" x="{GUTTER - 4}" y="{y(tick) + 4:.1f}">{tick:.1f}</text>')
        drawing.append(f'<path class="grid" d="M0 {y(tick):.1f}H{columns.width - 2:.1f}"/>')
    for order, values in enumerate(series.values()):
        points = [f"{columns.mid(column):.1f} {y(float(values[column])):.1f}" for column in range(count)]
        drawing.append(f'<path class="line s{order}" d="M{"L".join(points)}"/>')
        drawing.append(f'<path class="dots s{order}" d="{"".join(f"M{point}h0" for point in points)}"/>')
    drawn = "".join(gutter), "".join(drawing)
    return figure(*drawn, width=columns.width, height=HEAD + height, name=name, aligned=True)


def matrix(
    weights: NDArray[np.float32], rows: Sequence[str], columns: Sequence[str], *, name: str, key: str, side: int = 0
) -> str:
    """Weights (rows, columns) from 0 to 1, the largest in full color; those below 0.02 are left out.

    A cell has `side` pixels, or as many as there is room for. `key` and the number of a row mark it for the script.
    """
    side, head, most = side or (17 if len(columns) <= ROOMY else 14), 70, float(weights.max(initial=0.0))
    height, width = side * len(rows), side * len(columns)
    gutter = "".join(
        f'<text class="end small" x="{GUTTER - 6}" y="{head + side * (row + 0.7):.0f}">'
        f"{escaped(clipped(word, 12))}</text>"
        for row, word in enumerate(rows)
    )
    drawing = [column_names(columns, side, head)]
    for row, of_row in enumerate(weights):
        y = head + side * row
        drawing.append(f'<g data-t="{key}{row}"><rect class="back" y="{y}" width="{width}" height="{side}"/>')
        for column in np.flatnonzero(of_row >= 0.02).tolist():
            weight = float(of_row[column])
            title = escaped(f"{rows[row]} looks at {columns[column]}: {weight:.4f}")
            drawing.append(
                f'<rect class="much" x="{side * column + 1}" y="{y + 1}" width="{side - 2}" height="{side - 2}"'
                f' fill-opacity="{weight / most:.3f}"><title>{title}</title></rect>'
            )
        drawing.append("</g>")
    return figure(gutter, "".join(drawing), width=width + 50, height=head + height + 2, name=name)


def bars(values: NDArray[np.float64], letters: Sequence[str], *, name: str, place: int, top: float, side: float) -> str:
    """Numbers above zero, over the letters of a word; the tallest has the full height."""
    tallest, most = 30.0, max(float(values.max(initial=0.0)), 1e-9)
    drawn = []
    for column, (letter, value) in enumerate(zip(letters, values.tolist(), strict=True)):
        tall, x = tallest * value / most, side * column + 2
        drawn.append(
            f'<rect class="back" x="{x:.0f}" y="{top:.0f}" width="{side - 4:.0f}" height="{tallest:.0f}">'
            f"<title>{escaped(f'{letter}, {name}: {value:.4g}')}</title></rect>"
            f'<rect class="bar s{place}" x="{x:.0f}" y="{top + tallest - tall:.1f}" width="{side - 4:.0f}"'
            f' height="{tall:.1f}"/>'
        )
    return "".join(drawn)
