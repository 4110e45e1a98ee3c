"""Texts of similar length in one batch, with a bound on its words. A batch is a pure function of (seed, step)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ensue.data.permutation import mix

if TYPE_CHECKING:
    from ensue.data.compact_texts import Numbers

POOL_BATCHES = 8
"""Batches whose texts are dealt anew among them in every epoch, if their lengths are close enough."""
PIECE = 1 << 20
"""The lengths that are sorted at once."""
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
        self._texts = _kept(np.asarray(lengths), mix(seed, 0, 1))
        self._pools = list(_pools(_sorted(np.asarray(lengths)), batch_size, batch_tokens))
        self._ends = np.cumsum([parts for _, parts in self._pools], dtype=np.int64)
        """Where the batches of each pool end among all."""
        self.steps_per_epoch = int(self._ends[-1]) if len(self._ends) else 0
        self._epoch = -1
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)
        self._generator = np.random.default_rng(0)
        self._states: list[tuple[int, int, int]] = []
        """That of the generator before it deals each pool. So the texts of an epoch in their order need no memory."""

    def rows(self, step: int) -> NDArray[np.int64]:
        """The numbers of the texts in the batch of `step`, counted from 0 over all epochs."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._deal(epoch)
        batch = int(self._order[index])
        pool = int(np.searchsorted(self._ends, batch, side="right"))
        texts, parts = self._pools[pool]
        self._generator.bit_generator.state = self._state(*self._states[pool])
        dealt = np.array_split(self._generator.permutation(self._texts.read(texts)), parts)
        return dealt[batch - int(self._ends[pool])].astype(np.int64)  # which counts from the last part

    def _state(self, place: int, has_half: int, half: int) -> dict[str, Any]:
        state = dict(self._generator.bit_generator.state)
        return state | {"state": state["state"] | {"state": place}, "has_uint32": has_half, "uinteger": half}

    def _deal(self, epoch: int) -> None:
        """The order of an epoch, kept until another one is asked for."""
        self._generator = generator = np.random.default_rng(mix(self.seed, epoch, 0))
        self._order = generator.permutation(self.steps_per_epoch)
        self._states, self._epoch = [], epoch
        for texts, _ in self._pools:
            state: Any = generator.bit_generator.state
            self._states.append((state["state"]["state"], state["has_uint32"], state["uinteger"]))
            generator.permutation(texts.stop - texts.start)

    def __repr__(self) -> str:
        return f"Buckets({self.num_texts:,} texts, steps_per_epoch={self.steps_per_epoch:,})"


def _kept(lengths: NDArray[np.integer], key: int) -> Numbers:
    """`_ordered`; of many texts it is in the cache, as it takes time and memory."""
    from ensue.data import compact_texts, kept_columns  # which an export does not carry  # noqa: PLC0415

    if len(lengths) * np.dtype(_small(len(lengths))).itemsize <= compact_texts.SPILL_BYTES:
        return compact_texts.Numbers.of({"numbers": _ordered(lengths, key)})

    def read() -> kept_columns.Kept:
        order = compact_texts.Numbers.of({"numbers": _ordered(lengths, key)})
        return kept_columns.Kept({"order": compact_texts.Columns({"texts": order})}, {})

    digest = sha256(np.ascontiguousarray(lengths).data).hexdigest()
    found = kept_columns.in_cache(["order", digest, key], read).parts["order"]
    assert found is not None
    return cast("Numbers", found.columns["texts"])


def _ordered(lengths: NDArray[np.integer], key: int) -> NDArray[np.integer]:
    """The numbers of the texts by length, those of one length at random, in little memory."""
    count, longest, small = len(lengths), int(lengths.max(initial=0)), _small(len(lengths))
    places = np.arange(count, dtype=small)
    np.random.default_rng(key).shuffle(places)
    drawn = np.empty(count, small)  # the texts in an order at random
    drawn[places] = np.arange(count, dtype=small)
    del places
    if longest >= 1 << 16:
        return drawn[np.argsort(lengths[drawn], kind="stable")]
    shuffled, counts = lengths.astype(np.uint16)[drawn], _counts(lengths)
    free, found = np.cumsum(counts) - counts, np.empty(count, small)  # the first place that each length has left
    for piece in _pieces(count):
        order = np.argsort(shuffled[piece], kind="stable")
        here, own = shuffled[piece][order], np.bincount(shuffled[piece], minlength=len(counts))
        found[(free - np.cumsum(own) + own)[here] + np.arange(len(here))] = drawn[piece][order]
        free += own
    return found


def _sorted(lengths: NDArray[np.integer]) -> NDArray[np.integer]:
    """The lengths in order, in little memory."""
    if lengths.max(initial=0) >= 1 << 16:
        return np.sort(lengths)
    counts = _counts(lengths)
    return np.repeat(np.arange(len(counts), dtype=np.uint16), counts)


def _counts(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """How many texts there are of each length."""
    counts = np.zeros(int(lengths.max(initial=0)) + 1, np.int64)
    for piece in _pieces(len(lengths)):
        counts += np.bincount(lengths[piece], minlength=len(counts))
    return counts


def _small(count: int) -> Any:
    """The type of the numbers of so many texts."""
    return np.int32 if count < 1 << 31 else np.int64


def _pieces(count: int) -> Iterator[slice]:
    return (slice(begin, min(begin + PIECE, count)) for begin in range(0, count, PIECE))


def _pools(ordered: NDArray[np.integer], batch_size: int, batch_tokens: int) -> Iterator[tuple[slice, int]]:
    """Runs of texts in the order of their lengths, and into how many batches each is cut."""
    begin = 0
    while begin < len(ordered):
        shortest = max(1, int(ordered[begin]))
        end = min(
            _end_of_pool(ordered, shortest), begin + POOL_BATCHES * max(1, min(batch_size, batch_tokens // shortest))
        )
        longest = max(1, int(ordered[end - 1]))
        rows = max(1, min(batch_size, batch_tokens // longest))
        yield slice(begin, end), math.ceil((end - begin) / rows)
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
