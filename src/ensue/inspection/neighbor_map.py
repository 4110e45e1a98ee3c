"""A map of vectors in two dimensions, in which near is alike: classical scaling (Torgerson 1952; Gower 1966).

Of unit vectors it is the projection on the first two principal components.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


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
    found: NDArray[np.int64] = np.unique(np.sort(pairs, axis=1), axis=0)
    return found
