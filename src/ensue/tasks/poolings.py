"""From the vectors of a text's tokens to one vector."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ensue.errors import EnsueError, nearest

Vectors = NDArray[np.float32]
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
