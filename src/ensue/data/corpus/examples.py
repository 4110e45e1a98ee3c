"""Examples of masked language models from token ids: blocks of a stream, or pairs of segments.

Each epoch has all examples in a random order. The ids and the key of example n are functions of the seed, the epoch and
n, independent of batches and processes. The key determines which tokens are hidden (`Masking`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.mapped_file import TokenFile
from ensue.data.permutation import Permutation, mix, mix_each, random_numbers, uniform_floats

NOT_HIDDEN = -1
"""The target of a visible token."""
_CHOICE, _RANK, _TOKEN = 0, 1, 2  # stream ids, for different random numbers at the same position


@dataclass(frozen=True)
class Masking:
    """Masking of tokens (Devlin et al. 2019).

    Of the tokens in a row that can be hidden, the fraction `share` is hidden, but at least one token. A hidden token is
    replaced by the mask with probability `masked`, by a random token with probability `random`, and otherwise does not
    change. With `begins_word`, the hidden tokens are the tokens of randomly chosen complete words, at least one word.
    """

    mask_id: int
    text_ids: NDArray[np.int64]
    """The ids of random replacements, (N,)."""
    can_hide: NDArray[np.bool_]
    """Whether each token of the vocabulary can be hidden, (V,)."""
    share: float = 0.15
    masked: float = 0.8
    random: float = 0.1
    begins_word: NDArray[np.bool_] | None = None
    """Whether each token of the vocabulary begins a word, (V,); None to hide tokens independently."""

    def hide(self, ids: NDArray[np.int64], keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return inputs and targets (B, T) of ids (B, T) with keys (B,). Targets of visible tokens are `NOT_HIDDEN`."""
        positions = np.arange(ids.shape[1])
        hidden = self._select_hidden(ids, _random_numbers(keys, positions, _RANK))
        targets = np.where(hidden, ids, NOT_HIDDEN)
        choice = _random_numbers(keys, positions, _CHOICE)
        random = self.text_ids[(_random_numbers(keys, positions, _TOKEN) * len(self.text_ids)).astype(np.int64)]
        inputs = np.where(hidden & (choice < self.masked), self.mask_id, ids)
        is_random = hidden & (choice >= self.masked) & (choice < self.masked + self.random)
        return np.where(is_random, random, inputs), targets

    def _select_hidden(self, ids: NDArray[np.int64], order: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which tokens are hidden, (B, T): the tokens with the lowest random numbers `order` (B, T)."""
        possible = self.can_hide[ids]
        count = possible.sum(1, keepdims=True)
        max_hidden = np.maximum(1, np.rint(self.share * count)) * (count > 0)
        if self.begins_word is None:
            return np.asarray(_ranks(np.where(possible, order, 2.0)) < max_hidden)
        positions = np.arange(ids.shape[1])
        begins = self.begins_word[ids] | ~possible
        begins[:, 1:] |= ~possible[:, :-1]
        begins[:, :1] = True
        first = np.maximum.accumulate(np.where(begins, positions, 0), axis=1)
        ends = np.ones_like(begins)
        ends[:, :-1] = begins[:, 1:]
        last = np.minimum.accumulate(np.where(ends, positions, ids.shape[1])[:, ::-1], axis=1)[:, ::-1]
        ranks = _ranks(np.where(possible, np.take_along_axis(order, first, 1), 2.0))
        is_first_word = np.take_along_axis(ranks, first, 1) == 0
        return np.asarray(possible & ((np.take_along_axis(ranks, last, 1) < max_hidden) | is_first_word))


def _random_numbers(keys: NDArray[np.uint64], positions: NDArray[np.int64], purpose: int) -> NDArray[np.float64]:
    return uniform_floats(random_numbers(keys[:, None], 3 * positions + purpose))


def _ranks(order: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the rank of each number in its row, (B, T). Equal numbers are ranked by their position."""
    sorted_positions = np.argsort(order, axis=1, kind="stable")
    ranks = np.empty_like(sorted_positions)
    np.put_along_axis(ranks, sorted_positions, np.broadcast_to(np.arange(order.shape[1]), order.shape), axis=1)
    return ranks


_OFFSET, _ORDER, _KEY = 0, 1, 2  # stream ids, for different random numbers in the same epoch


class Frame(NamedTuple):
    """The special ids around the texts of an example."""

    begin_id: int
    separator_id: int
    padding_id: int


class ExampleRows(NamedTuple):
    """Rows of ids (B, T), padded on the right, with lengths (B,) and keys (B,).

    For pairs, `segments` (B, T) are segment ids, and `follows` (B,) is whether segment B follows segment A.
    """

    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]
    keys: NDArray[np.uint64]
    segments: NDArray[np.int64] | None = None
    follows: NDArray[np.bool_] | None = None


class FramedExamples(ABC):
    """Examples with special ids around their texts; `count` is the number of examples in an epoch."""

    count: int
    longest: int
    """The maximum number of ids in an example, including special ids."""
    seed: int
    frame: Frame

    def rows(self, first: int, size: int) -> ExampleRows:
        """Return `size` consecutive examples. The number `first` of the first example is counted over all epochs."""
        chunks = []
        while size:
            epoch, index = divmod(first, self.count)
            num = min(size, self.count - index)
            order = Permutation(self.count, mix(self.seed, epoch, _ORDER))
            chunks.append(self.epoch_rows(epoch, order(np.arange(index, index + num))))
            first, size = first + num, size - num
        return chunks[0] if len(chunks) == 1 else self._concatenate(chunks)

    def keys(self, epoch: int, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the keys of the examples with these numbers, (N,)."""
        return mix_each(mix(self.seed, epoch, _KEY), numbers)

    def add_frame(self, examples: Iterable[Sequence[NDArray[np.int64]]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the texts of examples with special ids around them, padded on the right, (B, T), and the lengths."""
        begin, separator = np.array([self.frame.begin_id]), np.array([self.frame.separator_id])
        rows = [np.concatenate([begin, *(ids for text in texts for ids in (text, separator))]) for texts in examples]
        lengths = np.array([len(row) for row in rows], np.int64)
        ids = np.full((len(rows), int(lengths.max(initial=0))), self.frame.padding_id, np.int64)
        ids[np.arange(ids.shape[1]) < lengths[:, None]] = np.concatenate(rows)
        return ids, lengths

    def _concatenate(self, chunks: list[ExampleRows]) -> ExampleRows:
        ids, lengths, keys, segments, follows = zip(*chunks, strict=True)
        longest = max(rows.shape[1] for rows in ids)

        def pad(arrays: Iterable[NDArray[np.int64]], fill: int) -> NDArray[np.int64]:
            pads = ((rows, ((0, 0), (0, longest - rows.shape[1]))) for rows in arrays)
            return np.concatenate([np.pad(rows, width, constant_values=fill) for rows, width in pads])

        return ExampleRows(
            pad(ids, self.frame.padding_id), np.concatenate(lengths), np.concatenate(keys),
            None if segments[0] is None else pad(segments, 0),
            None if follows[0] is None else np.concatenate(follows),
        )  # fmt: skip

    @abstractmethod
    def epoch_rows(self, epoch: int, numbers: NDArray[np.int64]) -> ExampleRows:
        """Return the examples with these numbers in an epoch."""


class FramedBlocks(FramedExamples):
    """Examples `[CLS] block [SEP]` with blocks of `length` ids, which may span documents.

    The offset of the first block is random in each epoch. The ids before and after the blocks, fewer than 2 · `length`,
    are left out. With `covers_all`, all ids are in a block, and the last block may be shorter.
    """

    def __init__(self, tokens: TokenFile, *, length: int, frame: Frame, seed: int, covers_all: bool = False) -> None:
        assert len(tokens) >= (1 if covers_all else length)
        self.tokens, self.length, self.frame, self.seed, self.covers_all = tokens, length, frame, seed, covers_all
        self.longest = length + 2
        self.count = -(-len(tokens) // length) if covers_all else max(1, len(tokens) // length - 1)

    def epoch_rows(self, epoch: int, numbers: NDArray[np.int64]) -> ExampleRows:
        max_offset = 0 if self.covers_all else len(self.tokens) - self.length * self.count
        starts = mix(self.seed, epoch, _OFFSET) % (max_offset + 1) + self.length * numbers
        stops = np.minimum(starts + self.length, len(self.tokens))
        if (stops - starts == self.length).all():
            blocks = list(self.tokens.read_rows(starts, self.length))
        else:
            blocks = [self.tokens.read(int(a), int(b)) for a, b in zip(starts, stops, strict=True)]
        return ExampleRows(*self.add_frame([block] for block in blocks), self.keys(epoch, numbers))


class FramedPairs(FramedExamples):
    """`[CLS] A [SEP] B [SEP]`: two segments of at most `length` ids in total (Devlin et al. 2019).

    Each document is divided into chunks of sentences that fill an example. A is the beginning of a chunk, with a random
    number of sentences. With probability 1/2, B is the remainder of the chunk. Otherwise, and if the chunk is one
    sentence, B begins at a random sentence of another document and fills the example, up to the end of the document. If
    the segments exceed `length`, the longer segment is truncated first. Raises ValueError for fewer than two documents.
    """

    def __init__(self, tokens: TokenFile, *, length: int, frame: Frame, seed: int) -> None:
        self.tokens, self.length, self.frame, self.seed = tokens, length, frame, seed
        self.longest = length + 3
        marks, kinds = [], []
        for start, ids in tokens.blocks():
            positions = np.flatnonzero((ids == frame.begin_id) | (ids == frame.separator_id))
            marks.append(start + positions)
            kinds.append(ids[positions] == frame.begin_id)
        stops = np.concatenate([*marks, [len(tokens)]])
        starts = np.concatenate(([0], stops[:-1] + 1))
        document = np.concatenate(([0], np.cumsum(np.concatenate(kinds)))) if kinds else np.zeros(1, np.int64)
        is_nonempty = stops > starts
        self.starts, self.stops, document = starts[is_nonempty], stops[is_nonempty], document[is_nonempty]
        self.documents = np.concatenate(([0], np.flatnonzero(np.diff(document)) + 1, [len(document)]))
        """The index of the first sentence of each document, followed by the number of sentences."""
        if len(self.documents) < 3:
            raise ValueError("pairs need at least two documents, with a blank line between documents")
        self.chunks = np.concatenate([self._divide_document(a, b) for a, b in pairwise(self.documents.tolist())])
        """The first sentence and the end of each chunk (exclusive), (N, 2)."""
        self.count = len(self.chunks)

    def _divide_document(self, first: int, end: int) -> NDArray[np.int64]:
        ends = np.cumsum(self.stops[first:end] - self.starts[first:end])
        cuts, index, before = [0], 0, 0
        while index < len(ends):
            index = max(index + 1, int(np.searchsorted(ends, before + self.length, side="right")))
            before = int(ends[index - 1])
            cuts.append(index)
        return first + np.stack((cuts[:-1], cuts[1:]), axis=1)

    def epoch_rows(self, epoch: int, numbers: NDArray[np.int64]) -> ExampleRows:
        keys = self.keys(epoch, numbers)
        draws = random_numbers(keys[:, None] ^ np.uint64(0x5E67), np.arange(4))
        result = [self._pair(int(number), row) for number, row in zip(numbers, draws.tolist(), strict=True)]
        ids, lengths = self.add_frame((a, b) for a, b, _ in result)
        positions, firsts = np.arange(ids.shape[1]), np.array([len(a) + 2 for a, _, _ in result])
        segments = ((positions >= firsts[:, None]) & (positions < lengths[:, None])).astype(np.int64)
        return ExampleRows(ids, lengths, keys, segments, np.array([follows for *_, follows in result]))

    def _pair(self, number: int, draws: list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:
        first, end = self.chunks[number].tolist()
        cut = first + 1 + draws[0] % max(1, end - first - 1)
        a = self._read(first, cut, self.length)
        follows = cut < end and draws[1] % 2 == 0
        b = self._read(cut, end, self.length) if follows else self._read_other_document(first, draws[2:], len(a))
        while len(a) + len(b) > self.length:
            max_ids = max(self.length - min(len(a), len(b)), self.length // 2)
            a, b = (a[:max_ids], b) if len(a) > len(b) else (a, b[:max_ids])
        return a, b, follows

    def _read_other_document(self, sentence: int, draws: list[int], used: int) -> NDArray[np.int64]:
        document = int(np.searchsorted(self.documents, sentence, side="right")) - 1
        other = draws[0] % (len(self.documents) - 2)
        other += other >= document
        first, end = self.documents[other : other + 2].tolist()
        return self._read(first + draws[1] % (end - first), end, max(self.length // 2, self.length - used))

    def _read(self, first: int, end: int, max_ids: int) -> NDArray[np.int64]:
        result, size = [], 0
        for start, stop in zip(self.starts[first:end].tolist(), self.stops[first:end].tolist(), strict=True):
            result.append(self.tokens.read(start, min(stop, start + max_ids - size)))
            size += len(result[-1])
            if size >= max_ids:
                break
        return np.concatenate(result)
