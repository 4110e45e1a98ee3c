"""A two-dimensional map of word vectors, by PCA of the normalized vectors, as a section of a page."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.inspection.page import Section, clip, measure_width


class NeighborMap(NamedTuple):
    """Coordinates `places` (N, 2), the explained share of variance, and links (L, 2) to nearest neighbors by cosine."""

    places: NDArray[np.float64]
    share: float
    links: NDArray[np.int64]


def map_vectors(vectors: NDArray[np.floating]) -> NeighborMap:
    """Normalize vectors (N, d) and project them to their first two principal components.

    The sign of an axis is chosen so that the coordinate with the largest absolute value is positive.
    """
    rows = vectors.astype(np.float64)
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    left, sizes, _ = np.linalg.svd(units - units.mean(0), full_matrices=False)
    places = np.zeros((len(rows), 2))
    count = min(2, len(sizes))
    places[:, :count] = left[:, :count] * sizes[:count]
    largest = np.abs(places).argmax(0)
    places *= np.where(places[largest, [0, 1]] < 0, -1.0, 1.0)
    variance = float((sizes**2).sum())
    share = float((sizes[:2] ** 2).sum()) / variance if variance > 1e-20 else 1.0
    return NeighborMap(places, share, _link_neighbors(units))


def _link_neighbors(units: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return pairs of each vector and its nearest neighbor, without duplicates."""
    if len(units) < 2:
        return np.zeros((0, 2), np.int64)
    cosines = units @ units.T
    np.fill_diagonal(cosines, -np.inf)
    return np.unique(np.sort(np.column_stack((np.arange(len(units)), cosines.argmax(1))), axis=1), axis=0)


WIDTH, HEIGHT, MARGIN = 1000, 560, 40
"""The size and the margin of the drawing in pixels."""
LINE_PIXELS = 14
"""The minimum vertical distance between two labels."""
Box = tuple[float, float, float]


def map_section(
    neighbors: NeighborMap, words: Sequence[str], *, num_queries: int, titles: Sequence[str], heading: str, about: str
) -> Section:
    """Return the section with the map of `words`. The first `num_queries` words are queries; `titles` are tooltips."""
    x, y = _to_pixels(neighbors.places).T.tolist()
    labels = _place_labels(x, y, [clip(word, 24) for word in words])
    values: dict[str, Any] = {
        "about": about, "share": neighbors.share, "width": WIDTH, "height": HEIGHT,
        "links": [(x[a], y[a], x[b], y[b]) for a, b in neighbors.links.tolist()],
        "words": [
            {"x": x[n], "y": y[n], "label": label, "left": left, "base": base, "query": n < num_queries, "title": title}
            for n, ((label, left, base), title) in enumerate(zip(labels, titles, strict=True))
        ],
    }  # fmt: skip
    return Section(heading, "extensions/word_vectors/neighbor_map.html", values)


def _to_pixels(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return centered coordinates in pixels. Both axes have the same scale, and the second axis points upwards."""
    low, high = places.min(0), places.max(0)
    size = np.array([WIDTH - 2 * MARGIN - 80, HEIGHT - 2 * MARGIN])
    scale = float((size / np.maximum(high - low, 1e-9)).min())
    centered = (places - (low + high) / 2) * scale * np.array([1, -1])
    return np.round(centered + np.array([WIDTH / 2 - 40, HEIGHT / 2]), 1)


def _place_labels(x: Sequence[float], y: Sequence[float], words: Sequence[str]) -> list[tuple[str, float, float]]:
    """Return the label, left edge and baseline of each word, near its point; the label is "" if it would overlap."""
    boxes: list[Box] = []
    labels = []
    for left, middle, word in zip(x, y, words, strict=True):
        start, end = left + 7, left + 7 + measure_width(word)
        bases = [middle + 4 + LINE_PIXELS * offset for offset in (0, 0.5, -0.5, 1, -1)]
        neighbors = [base for low, high, base in boxes if low < end and start < high]
        free = (base for base in bases if all(abs(base - other) >= LINE_PIXELS for other in neighbors))
        base = next(free, None)
        if base is not None:
            boxes.append((start, end, base))
        labels.append(("" if base is None else word, start, bases[0] if base is None else base))
    return labels
