"""Ids to the examples of a masked language model: blocks of a stream, or pairs of segments.

An epoch has each example once, in an order of its own. Which ids example n of an epoch has, and its key, depend on the
seed, the epoch and n alone: not on the batch, on workers, or on what was read before. Which of its tokens are hidden
(`Masking`), and what stands in their place, is a pure function of its key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.corpus.token_file import TokenFile
from ensue.data.permutation import Permutation, mix, mixed, random_numbers, shares

NOT_HIDDEN = -1
"""The target where nothing was hidden."""
_CHOICE, _PLACE, _TOKEN = 0, 1, 2  # what a random number of a position is for


@dataclass(frozen=True)
class Masking:
    """A share of the tokens is hidden: `share` of those that can be, but one at least (Devlin et al. 2019).

    `masked` of the hidden ones become the mask, `random` of them any token of `text_ids`, the others stay. With
    `begins_word`, whole words are hidden, in random order, as long as they do not exceed the share; one at least.
    """

    mask_id: int
    text_ids: NDArray[np.int64]
    """Ids (N,) of tokens that can be hidden, and can stand in for others."""
    can_hide: NDArray[np.bool_]
    """For each id of the vocabulary."""
    share: float = 0.15
    masked: float = 0.8
    random: float = 0.1
    begins_word: NDArray[np.bool_] | None = None
    """For each id of the vocabulary; None: tokens are hidden one by one."""

    def hide(self, ids: NDArray[np.int64], keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets (B, T) of the rows of `ids`, for a key each; targets elsewhere are `NOT_HIDDEN`."""
        places = np.arange(ids.shape[1])
        hidden = self._chosen(ids, _numbers(keys, places, _PLACE))
        targets = np.where(hidden, ids, NOT_HIDDEN)
        choice = _numbers(keys, places, _CHOICE)
        others = self.text_ids[(_numbers(keys, places, _TOKEN) * len(self.text_ids)).astype(np.int64)]
        inputs = np.where(hidden & (choice < self.masked), self.mask_id, ids)
        is_random = hidden & (choice >= self.masked) & (choice < self.masked + self.random)
        return np.where(is_random, others, inputs), targets

    def _chosen(self, ids: NDArray[np.int64], order: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Where something is hidden; the tokens with the lowest numbers of `order` come first."""
        possible = self.can_hide[ids]
        count = possible.sum(1, keepdims=True)
        most = np.maximum(1, np.rint(self.share * count)) * (count > 0)
        if self.begins_word is None:
            return np.asarray(_ranks(np.where(possible, order, 2.0)) < most)
        places = np.arange(ids.shape[1])
        begins = self.begins_word[ids] | ~possible
        begins[:, 1:] |= ~possible[:, :-1]
        begins[:, :1] = True
        first = np.maximum.accumulate(np.where(begins, places, 0), axis=1)
        ends = np.ones_like(begins)
        ends[:, :-1] = begins[:, 1:]
        last = np.minimum.accumulate(np.where(ends, places, ids.shape[1])[:, ::-1], axis=1)[:, ::-1]
        ranks = _ranks(np.where(possible, np.take_along_axis(order, first, 1), 2.0))
        is_first_word = np.take_along_axis(ranks, first, 1) == 0
        fits = np.take_along_axis(ranks, last, 1) < most
        return np.asarray(possible & (fits | is_first_word))


def _numbers(keys: NDArray[np.uint64], places: NDArray[np.int64], purpose: int) -> NDArray[np.float64]:
    """Random numbers (B, T) from 0 to below 1."""
    return shares(random_numbers(keys[:, None], 3 * places + purpose))


def _ranks(order: NDArray[np.float64]) -> NDArray[np.int64]:
    """The place (B, T) of each number among the sorted ones of its row; of equal ones the first comes first."""
    sorted_places = np.argsort(order, axis=1, kind="stable")
    ranks = np.empty_like(sorted_places)
    np.put_along_axis(ranks, sorted_places, np.broadcast_to(np.arange(order.shape[1]), order.shape), axis=1)
    return ranks


_OFFSET, _ORDER, _KEY = 0, 1, 2  # what a random number of (seed, epoch) is for
_SCANNED = 1 << 20


class Frame(NamedTuple):
    """The ids around the texts of an example."""

    begin_id: int
    separator_id: int
    padding_id: int


class ExampleRows(NamedTuple):
    """Rows of ids (B, T), padded on the right, and how many are real; of pairs also `segments` (B, T), and whether the
    second segment follows the first. `keys` are those of the examples.
    """

    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]
    keys: NDArray[np.uint64]
    segments: NDArray[np.int64] | None = None
    follows: NDArray[np.bool_] | None = None


class FramedExamples(ABC):
    """`count` examples in each epoch."""

    count: int
    longest: int
    """The most ids of an example, with those around its texts."""
    seed: int
    frame: Frame

    def rows(self, first: int, size: int) -> ExampleRows:
        """`size` examples from number `first` on, counted over all epochs."""
        parts = []
        while size:
            epoch, place = divmod(first, self.count)
            here = min(size, self.count - place)
            order = Permutation(self.count, mix(self.seed, epoch, _ORDER))
            parts.append(self.of_epoch(epoch, order(np.arange(place, place + here))))
            first, size = first + here, size - here
        return parts[0] if len(parts) == 1 else self._joined(parts)

    def keys(self, epoch: int, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The keys of examples, by their numbers."""
        return mixed(mix(self.seed, epoch, _KEY), numbers)

    def padded(self, rows: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows side by side (B, T), and their lengths."""
        lengths = np.array([len(row) for row in rows], np.int64)
        ids = np.full((len(rows), int(lengths.max(initial=0))), self.frame.padding_id, np.int64)
        ids[np.arange(ids.shape[1]) < lengths[:, None]] = np.concatenate(rows)
        return ids, lengths

    def _joined(self, parts: list[ExampleRows]) -> ExampleRows:
        """The rows of several parts, padded to the longest."""
        longest = max(part.ids.shape[1] for part in parts)

        def widened(arrays: list[NDArray[np.int64]], fill: int) -> NDArray[np.int64]:
            return np.concatenate(
                [np.pad(a, ((0, 0), (0, longest - a.shape[1])), constant_values=fill) for a in arrays]
            )

        segments = [part.segments for part in parts if part.segments is not None]
        follows = [part.follows for part in parts if part.follows is not None]
        return ExampleRows(
            widened([part.ids for part in parts], self.frame.padding_id),
            np.concatenate([part.lengths for part in parts]),
            np.concatenate([part.keys for part in parts]),
            widened(segments, 0) if segments else None,
            np.concatenate(follows) if follows else None,
        )

    @abstractmethod
    def of_epoch(self, epoch: int, numbers: NDArray[np.int64]) -> ExampleRows:
        """The examples of these numbers in an epoch."""


class FramedBlocks(FramedExamples):
    """`[CLS] block [SEP]`: the stream in blocks of `length` ids, which go on over the ends of documents.

    The cut moves from epoch to epoch, and less than two blocks are left out. With `whole` nothing is, and nothing
    moves; the last block may be shorter. Needs `length` ids, or with `whole` one.
    """

    def __init__(self, tokens: TokenFile, *, length: int, frame: Frame, seed: int, whole: bool = False) -> None:
        assert len(tokens) >= (1 if whole else length)
        self.tokens, self.length, self.frame, self.seed, self.whole = tokens, length, frame, seed, whole
        self.longest = length + 2
        self.count = -(-len(tokens) // length) if whole else max(1, len(tokens) // length - 1)

    def of_epoch(self, epoch: int, numbers: NDArray[np.int64]) -> ExampleRows:
        room = 0 if self.whole else len(self.tokens) - self.length * self.count
        starts = mix(self.seed, epoch, _OFFSET) % (room + 1) + self.length * numbers
        stops = np.minimum(starts + self.length, len(self.tokens))
        if (stops - starts == self.length).all():
            blocks = list(self.tokens.read_rows(starts, self.length))
        else:
            blocks = [self.tokens.read(int(a), int(b)) for a, b in zip(starts, stops, strict=True)]
        begin, separator = np.array([self.frame.begin_id]), np.array([self.frame.separator_id])
        rows = [np.concatenate((begin, block, separator)) for block in blocks]
        return ExampleRows(*self.padded(rows), self.keys(epoch, numbers))


class FramedPairs(FramedExamples):
    """`[CLS] A [SEP] B [SEP]`: two segments of sentences with at most `length` ids (Devlin et al. 2019).

    Each document is cut into chunks of sentences that fill an example. A is the beginning of a chunk, of random length.
    In half of the examples B is the rest of it, in the others (and where the chunk is one sentence) as much from a
    random place of another document. What is too long is cut at its end, the longer segment first. Raises ValueError
    for less than two documents.
    """

    def __init__(self, tokens: TokenFile, *, length: int, frame: Frame, seed: int) -> None:
        self.tokens, self.length, self.frame, self.seed = tokens, length, frame, seed
        self.longest = length + 3
        self.starts, self.stops, document = _sentences(tokens, frame)
        changes = np.flatnonzero(np.diff(document)) + 1
        self.documents = np.concatenate(([0], changes, [len(document)]))
        """The first sentence of each document, and the number of sentences."""
        if len(self.documents) < 3:
            raise ValueError("pairs need two documents at least, with a blank line between them")
        self.chunks = np.concatenate([self._chunks(a, b) for a, b in pairwise(self.documents.tolist())])
        """(N, 2): the first sentence of each chunk, and the one after its last."""
        self.count = len(self.chunks)

    def _chunks(self, first: int, end: int) -> NDArray[np.int64]:
        """The chunks of a document: as many sentences as there is room for, one at least."""
        ends = np.cumsum(self.stops[first:end] - self.starts[first:end])
        cuts, place, before = [0], 0, 0
        while place < len(ends):
            place = max(place + 1, int(np.searchsorted(ends, before + self.length, side="right")))
            before = int(ends[place - 1])
            cuts.append(place)
        return first + np.stack((cuts[:-1], cuts[1:]), axis=1)

    def of_epoch(self, epoch: int, numbers: NDArray[np.int64]) -> ExampleRows:
        keys = self.keys(epoch, numbers)
        draws = random_numbers(keys[:, None] ^ np.uint64(0x5E67), np.arange(4))
        found = [self._pair(int(number), row) for number, row in zip(numbers, draws.tolist(), strict=True)]
        begin, separator = np.array([self.frame.begin_id]), np.array([self.frame.separator_id])
        rows = [np.concatenate((begin, a, separator, b, separator)) for a, b, _ in found]
        ids, lengths = self.padded(rows)
        places, firsts = np.arange(ids.shape[1]), np.array([len(a) + 2 for a, _, _ in found])
        segments = ((places >= firsts[:, None]) & (places < lengths[:, None])).astype(np.int64)
        return ExampleRows(ids, lengths, keys, segments, np.array([follows for *_, follows in found]))

    def _pair(self, number: int, draws: list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:
        first, end = self.chunks[number].tolist()
        cut = first + 1 + draws[0] % max(1, end - first - 1)
        a = self._read(first, cut, self.length)
        follows = cut < end and draws[1] % 2 == 0
        b = self._read(cut, end, self.length) if follows else self._elsewhere(first, draws[2:], len(a))
        while len(a) + len(b) > self.length:
            most = max(self.length - min(len(a), len(b)), self.length // 2)
            a, b = (a[:most], b) if len(a) > len(b) else (a, b[:most])
        return a, b, follows

    def _elsewhere(self, sentence: int, draws: list[int], used: int) -> NDArray[np.int64]:
        """Sentences of another document, from a random one on, that fill what A leaves."""
        own = int(np.searchsorted(self.documents, sentence, side="right")) - 1
        other = draws[0] % (len(self.documents) - 2)
        other += other >= own
        first, end = self.documents[other : other + 2].tolist()
        return self._read(first + draws[1] % (end - first), end, max(self.length // 2, self.length - used))

    def _read(self, first: int, end: int, most: int) -> NDArray[np.int64]:
        """The ids of sentences without the marks between them, at most so many."""
        found, size = [], 0
        for start, stop in zip(self.starts[first:end].tolist(), self.stops[first:end].tolist(), strict=True):
            found.append(self.tokens.read(start, min(stop, start + most - size)))
            size += len(found[-1])
            if size >= most:
                break
        return np.concatenate(found)


def _sentences(tokens: TokenFile, frame: Frame) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Where the sentences of a stream begin and end, and the number of the document of each."""
    marks, kinds = [], []
    for start in range(0, len(tokens), _SCANNED):
        ids = tokens.read(start, min(start + _SCANNED, len(tokens)))
        places = np.flatnonzero((ids == frame.begin_id) | (ids == frame.separator_id))
        marks.append(start + places)
        kinds.append(ids[places] == frame.begin_id)
    stops = np.concatenate([*marks, [len(tokens)]])
    starts = np.concatenate(([0], stops[:-1] + 1))
    document = np.concatenate(([0], np.cumsum(np.concatenate(kinds)))) if kinds else np.zeros(1, np.int64)
    real = stops > starts
    return starts[real], stops[real], document[real]
