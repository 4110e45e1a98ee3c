"""A map of words, near each other as their vectors are, as a section of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.inspection.markup import clipped, width_of
from ensue.inspection.page import Section


class NeighborMap(NamedTuple):
    """Places (N, 2) of vectors, and the share of their variance that these show. `links` (L, 2) are pairs of numbers,
    of each vector and the one with the highest cosine.
    """

    places: NDArray[np.float64]
    share: float
    links: NDArray[np.int64]


def map_vectors(vectors: NDArray[np.floating]) -> NeighborMap:
    """The map of N vectors (N, d), by their directions; those of zeros lie as if at right angles to all.

    It is the same each time: of each axis the larger end points to the right, or up.
    """
    rows = vectors.astype(np.float64)
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    centered = units - units.mean(0)
    left, sizes, _ = np.linalg.svd(centered, full_matrices=False)
    places = np.zeros((len(rows), 2))
    kept = min(2, len(sizes))
    places[:, :kept] = left[:, :kept] * sizes[:kept]
    largest = np.abs(places).argmax(0)
    places *= np.where(places[largest, [0, 1]] < 0, -1.0, 1.0)
    whole = float((sizes**2).sum())
    return NeighborMap(places, float((sizes[:2] ** 2).sum()) / whole if whole > 1e-20 else 1.0, _links(units))


def _links(units: NDArray[np.float64]) -> NDArray[np.int64]:
    """Each vector and the nearest other one, every pair once."""
    if len(units) < 2:
        return np.zeros((0, 2), np.int64)
    cosines = units @ units.T
    np.fill_diagonal(cosines, -np.inf)
    pairs = np.column_stack((np.arange(len(units)), cosines.argmax(1)))
    return np.unique(np.sort(pairs, axis=1), axis=0)


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
