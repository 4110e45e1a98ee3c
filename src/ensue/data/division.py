"""Examples in two parts, for training and for validation, so that no source of an example is in both."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
PIECE = 1 << 16
"""The sources that are looked at together."""


class Division(NamedTuple):
    """The rows of both parts, in order, and how many sources they have."""

    train: Rows
    valid: Rows
    num_sources: int
    num_held_out: int
    """How many of the sources are for validation."""

    @property
    def has_repeats(self) -> bool:
        """Whether a source has several rows."""
        return self.num_sources < len(self.train) + len(self.valid)


def divided(sources: Sequence[Hashable] | Rows, kept: int, *, drawn: bool) -> Division:
    """About `kept` rows for training, the others for validation, by the source of each row, or by its number, where
    sources are numbered in the order in which they come first.

    Sources are held out at random, the same at every call, if `drawn`; else from the end of the data. One with more
    rows than are still wanted is passed over. If each has too many, the smallest is held out, unless there is no other.
    """
    if isinstance(sources, np.ndarray):
        source_of = sources
    else:
        numbers: dict[Hashable, int] = {}
        source_of = np.array([numbers.setdefault(source, len(numbers)) for source in sources], np.int64)
    sizes = np.bincount(source_of)
    order = np.random.default_rng(0).permutation(len(sizes)) if drawn else np.arange(len(sizes))
    held_out = np.zeros(len(sizes), np.bool_)
    wanted = len(source_of) - kept
    for piece in np.array_split(order[::-1], -(-len(order) // PIECE)):
        if not wanted:
            break
        for source, size in zip(piece.tolist(), sizes[piece].tolist(), strict=True):
            if size <= wanted:
                held_out[source] = True
                wanted -= size
    if wanted and not held_out.any() and len(sizes) > 1:
        last = order[::-1]
        held_out[last[np.argmin(sizes[last])]] = True
    is_valid = held_out[source_of]
    return Division(np.flatnonzero(~is_valid), np.flatnonzero(is_valid), len(sizes), int(held_out.sum()))
