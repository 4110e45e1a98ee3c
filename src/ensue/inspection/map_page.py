"""A map of words as a section of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.inspection.markup import clipped, width_of
from ensue.inspection.neighbor_map import NeighborMap
from ensue.inspection.page import Section

WIDTH, HEIGHT, MARGIN = 1000, 560, 40
"""Pixels of the drawing."""
LINE = 14
"""Pixels between two labels."""
Box = tuple[float, float, float]


def map_section(
    found: NeighborMap, words: Sequence[str], *, own: int, titles: Sequence[str], heading: str, about: str
) -> Section:
    """The map of `words`, of which the first `own` were asked for; `titles` are shown where the pointer rests."""
    x, y = _pixels(found.places).T.tolist()
    labels = _labels(x, y, [clipped(word, 24) for word in words])
    numbers: dict[str, Any] = {
        "about": about,
        "share": found.share,
        "width": WIDTH,
        "height": HEIGHT,
        "links": [(x[a], y[a], x[b], y[b]) for a, b in found.links.tolist()],
        "words": [
            {"x": x[n], "y": y[n], "label": label, "left": left, "base": base, "own": n < own, "title": titles[n]}
            for n, (label, left, base) in enumerate(labels)
        ],
    }
    return Section(heading, "inspection/map_page.html", numbers)


def _pixels(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Both axes on one scale, the second one upwards, in the middle of the drawing."""
    low, high = places.min(0), places.max(0)
    size = np.array([WIDTH - 2 * MARGIN - 80, HEIGHT - 2 * MARGIN])
    scale = float((size / np.maximum(high - low, 1e-9)).min())
    centered = (places - (low + high) / 2) * scale * np.array([1, -1])
    pixels: NDArray[np.float64] = np.round(centered + np.array([WIDTH / 2 - 40, HEIGHT / 2]), 1)
    return pixels


def _labels(x: Sequence[float], y: Sequence[float], words: Sequence[str]) -> list[tuple[str, float, float]]:
    """Each word with the place of its label: beside its point, or a little above or below; "" where is no room."""
    taken: list[Box] = []
    placed = []
    for left, middle, word in zip(x, y, words, strict=True):
        start, end = left + 7, left + 7 + width_of(word)
        bases = [middle + 4 + offset for offset in (0, LINE / 2, -LINE / 2, LINE, -LINE)]
        base = next((base for base in bases if _is_free(base, start, end, taken)), None)
        if base is not None:
            taken.append((start, end, base))
        placed.append(("" if base is None else word, start, bases[0] if base is None else base))
    return placed


def _is_free(base: float, start: float, end: float, taken: Sequence[Box]) -> bool:
    return all(abs(base - other) >= LINE or end <= left or right <= start for left, right, other in taken)
