"""Drawings over the words of a text, or the positions of another sequence, as inline SVG: matrices and lines.

They are independent of models. `drawing.html` has the pieces that other drawings are made of. All drawings of a page
that share `WordColumns` have a word at the same place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from types import MappingProxyType
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ensue.inspection.markup import clipped, drawn, short, width_of

HEAD = 26
"""Pixels of the words on top."""
ROOMY = 18
"""Columns up to which a matrix has large cells."""


class WordColumns:
    """The places of words side by side. `key` distinguishes the words of two texts."""

    unit = "word"
    gap = 2.0
    """Pixels between columns."""

    def __init__(self, words: Sequence[str], *, key: str = "") -> None:
        self.words, self.key = [clipped(word, 60) for word in words], key
        self.shown = [clipped(word) for word in words]
        self.widths = [max(44.0, width_of(word) + 16) for word in self.shown]
        self.lefts = list(accumulate(self.widths, initial=0.0))
        self.width = self.lefts[-1]

    def __len__(self) -> int:
        return len(self.words)

    def mid(self, column: int) -> float:
        """Return the middle of a column, in pixels."""
        return self.lefts[column] + (self.widths[column] - self.gap) / 2


Ranges = Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


def lines(
    series: Mapping[str, NDArray[np.float64]], columns: WordColumns, *, name: str,
    ranges: Ranges = MappingProxyType({}),
) -> Markup:  # fmt: skip
    """Return numbers over the columns, a line for each name, with gaps at NaN; `ranges` lie between two lines."""
    height, count = max(100, 17 * len(series) + 8), len(columns)
    ticks = ticks_of(*extent([values[:count] for values in (*series.values(), *chain(*ranges.values()))]))

    def y(value: float) -> float:
        return HEAD + 6 + (height - 12) * (ticks[-1] - value) / (ticks[-1] - ticks[0])

    def ways(values: NDArray[np.float64]) -> list[list[tuple[float, float]]]:
        known = np.flatnonzero(np.isfinite(values[:count]))
        runs = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1)
        return [[(columns.mid(at), y(float(values[at]))) for at in run.tolist()] for run in runs if len(run)]

    titles = [
        "\n".join([word, *(f"{kind} {short(float(values[column]))}" for kind, values in series.items())])
        for column, word in enumerate(columns.words)
    ]
    areas = {
        kind: [low + high[::-1] for low, high in zip(*map(ways, pair), strict=True)] for kind, pair in ranges.items()
    }
    return drawn(
        "inspection/lines.html", columns=columns, height=height, titles=titles, name=name,
        ticks=[(short(tick), y(tick)) for tick in ticks],
        kinds=[(kind, ways(values), areas.get(kind, [])) for kind, values in series.items()],
    )  # fmt: skip


def extent(values: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """Return the least and the largest number that is finite; 0 and 1 if there is none."""
    finite = np.concatenate([part[np.isfinite(part)].astype(np.float64).ravel() for part in values])
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def ticks_of(low: float, high: float) -> list[float]:
    """Up to seven round numbers at equal distances, of which the first and the last enclose the range."""
    size = max(high - low, 1e-6 * max(abs(low), abs(high))) or 1.0
    power = 10.0 ** math.floor(math.log10(size / 5))
    step = next(tick * power for tick in (1, 2, 5, 10) if tick * power * 5 >= size * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, max(last, first + 1) + 1)]


def matrix(
    weights: NDArray[np.float32], rows: Sequence[str], columns: Sequence[str], *, name: str, key: str, side: int = 0
) -> Markup:
    """Return weights (rows, columns) from 0 to 1, the largest in full color; those below 0.02 are left out.

    A cell has `side` pixels, or as many as there is room for. `key` and the number of a row mark it for the script.
    """
    cells = [[(at, float(of_row[at])) for at in np.flatnonzero(of_row >= 0.02).tolist()] for of_row in weights]
    return drawn(
        "inspection/matrix.html", rows=rows, columns=columns, cells=cells, name=name, key=key,
        most=float(weights.max(initial=0.0)), side=side or (17 if len(columns) <= ROOMY else 14),
    )  # fmt: skip
