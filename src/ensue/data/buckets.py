"""Texts of similar length in one batch, with a bound on its words. A batch is a pure function of (seed, step)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.data.permutation import mix

POOL_BATCHES = 8
"""Batches whose texts are dealt anew among them in every epoch, if their lengths are close enough."""
SPREAD = 1.15
"""How much longer the longest text of a pool may be than its shortest, one word aside."""


class Buckets:
    """Cuts texts of the given `lengths` into batches of at most `batch_size` texts and `batch_tokens` words.

    A text that is longer than that is a batch alone. Texts are sorted by length, those of one length at random, and cut
    into pools of neighbors; an epoch deals each pool's texts to its batches at random and puts all batches in a random
    order. So every text comes once an epoch, every epoch has as many steps, padding is at most `SPREAD`, and a file
    that is sorted by label, with texts of one length, gives batches of all labels.
    """

    def __init__(self, lengths: Sequence[int] | NDArray[np.integer], *, batch_size: int, batch_tokens: int, seed: int):
        self.num_texts, self.seed = len(lengths), seed
        self._pools = list(_pools(*_ordered(np.asarray(lengths), mix(seed, 0, 1)), batch_size, batch_tokens))
        self._batches = [(pool, part) for pool, (_, parts) in enumerate(self._pools) for part in range(parts)]
        self.steps_per_epoch = len(self._batches)
        self._epoch = -1
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)
        self._dealt: list[NDArray[np.integer]] = []

    def rows(self, step: int) -> NDArray[np.int64]:
        """The numbers of the texts in the batch of `step`, counted from 0 over all epochs."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._deal(epoch)
        pool, part = self._batches[self._order[index]]
        rows: NDArray[np.int64] = np.array_split(self._dealt[pool], self._pools[pool][1])[part].astype(np.int64)
        return rows

    def _deal(self, epoch: int) -> None:
        """The order of an epoch, kept until another one is asked for."""
        generator = np.random.default_rng(mix(self.seed, epoch, 0))
        self._order = generator.permutation(self.steps_per_epoch)
        self._dealt = [generator.permutation(rows) for rows, _ in self._pools]
        self._epoch = epoch

    def __repr__(self) -> str:
        return f"Buckets({self.num_texts:,} texts, steps_per_epoch={self.steps_per_epoch:,})"


def _ordered(lengths: NDArray[np.integer], key: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """The numbers of the texts by length, those of one length at random, and their lengths, in little memory."""
    count, longest = len(lengths), int(lengths.max(initial=0))
    small: Any = np.int32 if count < 1 << 31 else np.int64
    drawn = np.empty(count, small)  # the texts in an order at random
    drawn[np.random.default_rng(key).permutation(count)] = np.arange(count, dtype=small)
    numbers: Any = np.uint16 if longest < 1 << 16 else np.int64
    shuffled = lengths.astype(numbers)[drawn]
    order = np.argsort(shuffled, kind="stable")
    return drawn[order], shuffled[order]


def _pools(
    order: NDArray[np.integer], ordered: NDArray[np.integer], batch_size: int, batch_tokens: int
) -> Iterator[tuple[NDArray[np.integer], int]]:
    """Runs of the texts in this `order`, which is by length, and into how many batches each is cut."""
    begin = 0
    while begin < len(order):
        shortest = max(1, int(ordered[begin]))
        end = min(
            _end_of_pool(ordered, shortest), begin + POOL_BATCHES * max(1, min(batch_size, batch_tokens // shortest))
        )
        longest = max(1, int(ordered[end - 1]))
        rows = max(1, min(batch_size, batch_tokens // longest))
        yield order[begin:end], math.ceil((end - begin) / rows)
        begin = end


def _end_of_pool(ordered: NDArray[np.integer], shortest: int) -> int:
    """Where the lengths in this order become too long to be beside the shortest."""
    longest = min(math.floor(shortest * SPREAD) + 1, int(ordered[-1]))
    return int(np.searchsorted(ordered, ordered.dtype.type(longest), side="right"))  # of one type: not a copy


def by_length(lengths: NDArray[np.integer], *, batch_size: int, batch_tokens: int) -> Iterator[NDArray[np.int64]]:
    """The numbers of all texts in batches of similar length, for reading each once; shortest first."""
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order]
    begin = 0
    while begin < len(order):
        shortest = max(1, int(ordered[begin]))
        end = min(begin + max(1, min(batch_size, batch_tokens // shortest)), len(order))
        end = min(end, _end_of_pool(ordered, shortest))
        while end > begin + 1 and (end - begin) * ordered[end - 1] > batch_tokens:
            end -= 1
        yield order[begin:end]
        begin = end
