"""From the vectors of a text's tokens to one vector, and vectors of length 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ensue.errors import EnsueError, nearest

Vectors = NDArray[np.float32]
RealT = TypeVar("RealT", bound="np.floating[Any]")
POOLINGS: dict[str, Callable[[Vectors], Vectors]] = {
    "mean": lambda vectors: vectors.mean(-2),
    "first": lambda vectors: vectors[..., 0, :],
    "last": lambda vectors: vectors[..., -1, :],
    "max": lambda vectors: vectors.max(-2),
}
"""From vectors (..., T, d), of one token at least, to one (..., d)."""


def pooling_of(name: str) -> Callable[[Vectors], Vectors]:
    """The pooling of this name. Raises EnsueError if there is none."""
    if name not in POOLINGS:
        raise EnsueError(f'no pooling "{name}"{nearest(name, POOLINGS)}; known: {", ".join(POOLINGS)}')
    return POOLINGS[name]


def unit_vectors(vectors: NDArray[RealT], *, least: float = 0.0) -> NDArray[RealT]:
    """The vectors (..., d) with length 1; zeros for those that are not longer than `least`."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    units: NDArray[RealT] = (vectors / np.where(norms > least, norms, np.inf)).astype(vectors.dtype)
    return units
