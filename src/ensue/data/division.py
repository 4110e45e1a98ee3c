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


def divided(sources: Sequence[Hashable] | Rows, kept: int, *, drawn: bool, classes: Rows | None = None) -> Division:
    """About `kept` rows for training, the others for validation, by the source of each row, or by its number, where
    sources are numbered in the order in which they come first.

    Sources are held out at random, the same at every call, if `drawn`; else from the end of the data. One with more
    rows than are still wanted is passed over. If each has too many, the smallest is held out, unless there is no other.
    With `classes`, a number for each row, the more frequent ones first, sources are drawn from each class (`by_class`).
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
    if classes is not None:
        class_of = np.zeros(len(sizes), np.int64)
        np.maximum.at(class_of, source_of, classes)
        if 1 < len(np.unique(class_of)) <= len(sizes) // 2:
            held_out[by_class(order[::-1], sizes, class_of, wanted)] = True
            wanted = 0 if held_out.any() else wanted
    held_out[_first(order[::-1], sizes, wanted)] = True
    if wanted and not held_out.any() and len(sizes) > 1:
        last = order[::-1]
        held_out[last[np.argmin(sizes[last])]] = True
    is_valid = held_out[source_of]
    return Division(np.flatnonzero(~is_valid), np.flatnonzero(is_valid), len(sizes), int(held_out.sum()))


def _first(order: Rows, sizes: Rows, wanted: float) -> list[int]:
    """Sources in their order, of at most so many rows together; a larger one is passed over."""
    found = []
    for piece in np.array_split(order, -(-len(order) // PIECE)):
        if wanted < 1:
            break
        for source, size in zip(piece.tolist(), sizes[piece].tolist(), strict=True):
            if size <= wanted:
                found.append(source)
                wanted -= size
    return found


def by_class(order: Rows, sizes: Rows, class_of: Rows, wanted: int) -> list[int]:
    """The first sources of each class, with about the same share of its rows, `wanted` in all.

    A class of two sources or more has one or more of them here, the more frequent classes first if there are too many,
    and one or more that are not.
    """
    grouped = order[np.argsort(class_of[order], kind="stable")]
    members = np.split(grouped, np.flatnonzero(np.diff(class_of[grouped])) + 1)
    members = [own for own in sorted(members, key=lambda own: -sizes[own].sum()) if len(own) > 1]
    least = np.array([sizes[own].min() for own in members], np.float64)
    least[np.cumsum(least) > wanted] = 0
    more = np.maximum(0, [wanted * sizes[own].sum() / sizes.sum() for own in members] - least)
    quotas = least + more * min(1.0, (wanted - least.sum()) / max(1e-9, more.sum()))
    found, left = list[int](), 1e-6
    for own, quota, is_wanted in reversed([*zip(members, quotas.tolist(), least > 0, strict=True)]):
        left += quota
        chosen = _first(own, sizes, left)[: len(own) - 1]
        chosen = chosen or own[np.argsort(sizes[own], kind="stable")][: int(is_wanted)].tolist()
        left -= sizes[chosen].sum()
        found += chosen
    return found
