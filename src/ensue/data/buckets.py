"""Batches of texts of similar length with a bounded number of words. A batch is a pure function of (seed, step)."""

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
"""The number of batches in a pool."""
BLOCK_LENGTHS = 1 << 20
"""The number of lengths in a block of the counting sort, which bounds memory."""
MAX_RATIO = 1.15
"""The maximum ratio of the longest to the shortest text in a pool, plus one word for rounding."""


class Buckets:
    """Batches of at most `batch_size` texts and `batch_tokens` words, given the `lengths` of all texts.

    A text with more than `batch_tokens` words is a batch by itself. Texts are sorted by length, with equally long texts
    in random order, and split into pools of adjacent texts. In each epoch, the texts of a pool are distributed randomly
    among the batches of the pool, and all batches are shuffled. So every text occurs once in an epoch, all epochs have
    the same number of steps, `MAX_RATIO` bounds padding, and a file that is sorted by label has mixed batches.
    """

    def __init__(self, lengths: Sequence[int] | NDArray[np.integer], *, batch_size: int, batch_tokens: int, seed: int):
        self.num_texts, self.seed = len(lengths), seed
        self._texts = _cached_order(np.asarray(lengths), mix(seed, 0, 1))
        self._pools = list(_pools(_sort_lengths(np.asarray(lengths)), batch_size, batch_tokens))
        self._ends = np.cumsum([num_batches for _, num_batches in self._pools], dtype=np.int64)
        """The index after the last batch of each pool."""
        self.steps_per_epoch = int(self._ends[-1]) if len(self._ends) else 0
        self._epoch = -1
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)
        self._generator = np.random.default_rng(0)
        self._states: list[tuple[int, int, int]] = []
        """The state of the generator before each pool, from which the order of the pool's texts is recomputed."""

    def rows(self, step: int) -> NDArray[np.int64]:
        """Return the indices of the texts in the batch of `step`, counted from 0 over all epochs."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._shuffle_epoch(epoch)
        batch = int(self._order[index])
        pool = int(np.searchsorted(self._ends, batch, side="right"))
        texts, num_batches = self._pools[pool]
        state: Any = self._generator.bit_generator.state
        pcg_state, has_half, half = self._states[pool]
        state |= {"state": state["state"] | {"state": pcg_state}, "has_uint32": has_half, "uinteger": half}
        self._generator.bit_generator.state = state
        batches = np.array_split(self._generator.permutation(self._texts.read(texts)), num_batches)
        return batches[batch - int(self._ends[pool])].astype(np.int64)  # the index is negative

    def _shuffle_epoch(self, epoch: int) -> None:
        self._generator = generator = np.random.default_rng(mix(self.seed, epoch, 0))
        self._order = generator.permutation(self.steps_per_epoch)
        self._states, self._epoch = [], epoch
        for texts, _ in self._pools:
            state: Any = generator.bit_generator.state
            self._states.append((state["state"]["state"], state["has_uint32"], state["uinteger"]))
            generator.permutation(texts.stop - texts.start)

    def __repr__(self) -> str:
        return f"Buckets({self.num_texts:,} texts, steps_per_epoch={self.steps_per_epoch:,})"


def _cached_order(lengths: NDArray[np.integer], key: int) -> "Numbers":
    """Return the result of `_order_by_length`, from the cache if there are many texts."""
    from ensue.data import cached_columns, compact_texts  # noqa: PLC0415  # exported programs lack these modules

    if len(lengths) * np.dtype(_index_dtype(len(lengths))).itemsize <= compact_texts.SPILL_BYTES:
        return compact_texts.Numbers.of({"numbers": _order_by_length(lengths, key)})

    def read() -> cached_columns.CachedColumns:
        order = compact_texts.Numbers.of({"numbers": _order_by_length(lengths, key)})
        return cached_columns.CachedColumns({"order": compact_texts.Columns({"texts": order})}, {})

    digest = sha256(np.ascontiguousarray(lengths).data).hexdigest()
    columns = cached_columns.cache_columns(["order", digest, key], read).splits["order"]
    assert columns is not None
    return cast("Numbers", columns.columns["texts"])


def _order_by_length(lengths: NDArray[np.integer], key: int) -> NDArray[np.integer]:
    count, longest, dtype = len(lengths), int(lengths.max(initial=0)), _index_dtype(len(lengths))
    permutation = np.arange(count, dtype=dtype)
    np.random.default_rng(key).shuffle(permutation)
    inverse = np.empty(count, dtype)  # the inverse permutation: texts in random order
    inverse[permutation] = np.arange(count, dtype=dtype)
    del permutation
    if longest >= 1 << 16:
        return inverse[np.argsort(lengths[inverse], kind="stable")]
    shuffled, counts = lengths.astype(np.uint16)[inverse], _count_lengths(lengths)
    free, ordered = np.cumsum(counts) - counts, np.empty(count, dtype)  # `free`: the next free index of each length
    for block in _blocks(count):
        order = np.argsort(shuffled[block], kind="stable")
        sorted_lengths, histogram = shuffled[block][order], np.bincount(shuffled[block], minlength=len(counts))
        first = free - np.cumsum(histogram) + histogram
        ordered[first[sorted_lengths] + np.arange(len(order))] = inverse[block][order]
        free += histogram
    return ordered


def _sort_lengths(lengths: NDArray[np.integer]) -> NDArray[np.integer]:
    if lengths.max(initial=0) >= 1 << 16:
        return np.sort(lengths)
    counts = _count_lengths(lengths)
    return np.repeat(np.arange(len(counts), dtype=np.uint16), counts)


def _count_lengths(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    counts = np.zeros(int(lengths.max(initial=0)) + 1, np.int64)
    for block in _blocks(len(lengths)):
        counts += np.bincount(lengths[block], minlength=len(counts))
    return counts


def _index_dtype(count: int) -> Any:
    return np.int32 if count < 1 << 31 else np.int64


def _blocks(count: int) -> Iterator[slice]:
    return (slice(begin, min(begin + BLOCK_LENGTHS, count)) for begin in range(0, count, BLOCK_LENGTHS))


def _pools(ordered: NDArray[np.integer], batch_size: int, batch_tokens: int) -> Iterator[tuple[slice, int]]:
    begin = 0
    while begin < len(ordered):
        shortest = max(1, int(ordered[begin]))
        max_texts = POOL_BATCHES * max(1, min(batch_size, batch_tokens // shortest))
        end = min(_end_of_pool(ordered, shortest), begin + max_texts)
        batch_texts = max(1, min(batch_size, batch_tokens // max(1, int(ordered[end - 1]))))
        yield slice(begin, end), math.ceil((end - begin) / batch_texts)
        begin = end


def _end_of_pool(ordered: NDArray[np.integer], shortest: int) -> int:
    longest = min(math.floor(shortest * MAX_RATIO) + 1, int(ordered[-1]))
    # `longest` has the type of the array, since otherwise NumPy would convert the array
    return int(np.searchsorted(ordered, ordered.dtype.type(longest), side="right"))


def batch_by_length(lengths: NDArray[np.integer], *, batch_size: int, batch_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Yield batches of the indices of texts of similar length, shortest texts first."""
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
