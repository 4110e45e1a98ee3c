"""Drawings over the words of a text, as inline SVG: matrices and lines. They know nothing of models.

`drawing.html` has the pieces that other drawings are made of.

All drawings of a page that share `WordColumns` have a word at the same place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ensue.inspection.markup import clipped, width_of
from ensue.inspection.templates import drawn

HEAD = 26
"""Pixels of the words on top."""
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


def lines(series: Mapping[str, NDArray[np.float64]], columns: WordColumns, *, name: str) -> Markup:
    """Numbers over the words, a line for each name."""
    height, count = max(100, 17 * len(series) + 8), len(columns)
    low = min(float(values[:count].min()) for values in series.values())
    high = max(float(values[:count].max()) for values in series.values())
    ticks = [tick / 10 for tick in range(math.floor(10 * low), math.ceil(10 * high) + 1)]
    ticks = ticks if len(ticks) > 1 else [ticks[0], ticks[0] + 0.1]

    def y(value: float) -> float:
        return HEAD + 6 + (height - 12) * (ticks[-1] - value) / (ticks[-1] - ticks[0])

    titles = [
        "\n".join([word, *(f"{kind} {values[column]:.4f}" for kind, values in series.items())])
        for column, word in enumerate(columns.words)
    ]
    points = [[(columns.mid(at), y(float(values[at]))) for at in range(count)] for values in series.values()]
    shown = [(tick, y(tick)) for tick in ticks[:: math.ceil(len(ticks) / 6)]]
    return drawn(
        "inspection/lines.html", columns=columns, height=height, kinds=list(series), titles=titles, ticks=shown,
        points=points, name=name,
    )  # fmt: skip


def matrix(
    weights: NDArray[np.float32], rows: Sequence[str], columns: Sequence[str], *, name: str, key: str, side: int = 0
) -> Markup:
    """Weights (rows, columns) from 0 to 1, the largest in full color; those below 0.02 are left out.

    A cell has `side` pixels, or as many as there is room for. `key` and the number of a row mark it for the script.
    """
    cells = [[(at, float(of_row[at])) for at in np.flatnonzero(of_row >= 0.02).tolist()] for of_row in weights]
    return drawn(
        "inspection/matrix.html", rows=rows, columns=columns, cells=cells, name=name, key=key,
        most=float(weights.max(initial=0.0)), side=side or (17 if len(columns) <= ROOMY else 14),
    )  # fmt: skip
