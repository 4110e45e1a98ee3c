"""Heat maps and line plots over the words of a text, or the positions of another sequence, as inline SVG.

Drawings do not depend on models. `drawing.html` has macros for all drawings. A word has the same horizontal position in
all drawings with the same `WordColumns`.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from types import MappingProxyType
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ensue.inspection.page import clip, format_number, measure_width, render

HEAD_PIXELS = 26
"""The height of the words above a drawing."""
MAX_LARGE_COLUMNS = 18
"""The maximum number of columns of a heat map with large cells."""
LARGE_CELL_PIXELS, SMALL_CELL_PIXELS = 17, 14


class WordColumns:
    """The horizontal positions of words in a drawing. `key` distinguishes the words of two texts."""

    unit = "word"
    gap = 2.0
    """The distance between columns in pixels."""

    def __init__(self, words: Sequence[str], *, key: str = "") -> None:
        self.words, self.key = [clip(word, 60) for word in words], key
        self.shown = [clip(word) for word in words]
        self.widths = [max(44.0, measure_width(word) + 16) for word in self.shown]
        self.lefts = list(accumulate(self.widths, initial=0.0))
        self.width = self.lefts[-1]

    def __len__(self) -> int:
        return len(self.words)

    def mid(self, column: int) -> float:
        """Return the middle of a column, in pixels."""
        return self.lefts[column] + (self.widths[column] - self.gap) / 2


Ranges = Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


def plot(
    series: Mapping[str, NDArray[np.float64]], columns: WordColumns, *, name: str, ranges: Ranges = MappingProxyType({})
) -> Markup:
    """Return a line plot over the columns, with a line for each name in `series`, and gaps at NaN.

    `ranges` has the lower and upper bounds of a colored area, for some of the names. `name` is the title of the plot.
    """
    height, count = max(100, 17 * len(series) + 8), len(columns)
    ticks = choose_ticks(*find_extent([values[:count] for values in (*series.values(), *chain(*ranges.values()))]))

    def y(value: float) -> float:
        return HEAD_PIXELS + 6 + (height - 12) * (ticks[-1] - value) / (ticks[-1] - ticks[0])

    def paths(values: NDArray[np.float64]) -> list[list[tuple[float, float]]]:
        finite = np.flatnonzero(np.isfinite(values[:count]))
        runs = np.split(finite, np.flatnonzero(np.diff(finite) > 1) + 1)
        return [[(columns.mid(at), y(float(values[at]))) for at in run.tolist()] for run in runs if len(run)]

    titles = [
        "\n".join([word, *(f"{kind} {format_number(float(values[column]))}" for kind, values in series.items())])
        for column, word in enumerate(columns.words)
    ]
    areas = {
        kind: [low + high[::-1] for low, high in zip(*map(paths, pair), strict=True)] for kind, pair in ranges.items()
    }
    return render(
        "inspection/lines.html", columns=columns, height=height, titles=titles, name=name,
        ticks=[(format_number(tick), y(tick)) for tick in ticks],
        kinds=[(kind, paths(values), areas.get(kind, [])) for kind, values in series.items()],
    )  # fmt: skip


def find_extent(values: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """Return the minimum and the maximum of the finite values; 0 and 1 without finite values."""
    finite = np.concatenate([array[np.isfinite(array)].astype(np.float64).ravel() for array in values])
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def choose_ticks(low: float, high: float) -> list[float]:
    """Return up to seven equidistant round numbers, from at most `low` to at least `high`."""
    size = max(high - low, 1e-6 * max(abs(low), abs(high))) or 1.0
    power = 10.0 ** math.floor(math.log10(size / 5))
    step = next(tick * power for tick in (1, 2, 5, 10) if tick * power * 5 >= size * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, max(last, first + 1) + 1)]


def draw_matrix(
    weights: NDArray[np.float32], rows: Sequence[str], columns: Sequence[str], *, name: str, key: str, side: int = 0
) -> Markup:
    """Return a heat map of weights (rows, columns) from 0 to 1, in which the maximum has the full color.

    Weights below 0.02 are not drawn. A cell has `side` pixels; 0: 14 or 17, depending on the number of columns. The
    script of the page finds a row by `key` and the number of the row.
    """
    cells = [[(at, float(row[at])) for at in np.flatnonzero(row >= 0.02).tolist()] for row in weights]
    return render(
        "inspection/matrix.html", rows=rows, columns=columns, cells=cells, name=name, key=key,
        max_weight=float(weights.max(initial=0.0)),
        side=side or (LARGE_CELL_PIXELS if len(columns) <= MAX_LARGE_COLUMNS else SMALL_CELL_PIXELS),
    )  # fmt: skip
