"""Sentences inside of the contexts that are read: a row of a batch has the words of several, one behind the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged


class Places(NamedTuple):
    """The sentences `numbers` (S,) of a batch, and in which of its rows each is. `places` (S, L) count the words of the
    batch row by row, `real` (S, L) says which of them there are."""

    numbers: NDArray[np.int64]
    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    real: NDArray[np.bool_]


class Contexts:
    """Context n has the sentences from `firsts[n]` to `firsts[n + 1]` of `sentences`."""

    def __init__(self, sentences: Ragged, sizes: list[int]) -> None:
        self.sentences = sentences
        self.firsts = np.cumsum([0, *sizes], dtype=np.int64)
        self.words = sentences.joined(self.firsts)
        """A row for each context."""

    @property
    def are_sentences(self) -> bool:
        """Whether each has one sentence."""
        return len(self.firsts) == len(self.sentences) + 1

    def numbers(self, contexts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sentences of some contexts, in their order."""
        sizes = np.diff(self.firsts)[contexts]
        found: NDArray[np.int64] = np.repeat(self.firsts[contexts] - np.cumsum(sizes) + sizes, sizes)
        return found + np.arange(len(found))

    def places(self, contexts: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> Places:
        """The sentences of some contexts, which are the rows of a batch as wide as the longest of `among`."""
        among = contexts if among is None else among
        numbers, rows = self.numbers(contexts), np.repeat(np.arange(len(contexts)), np.diff(self.firsts)[contexts])
        lengths, starts = self.sentences.lengths[numbers], self.sentences.starts[numbers]
        columns = np.arange(int(self.sentences.lengths[self.numbers(among)].max(initial=0)))
        real = columns < lengths[:, None]
        width = int(self.words.lengths[among].max(initial=0))
        begins = rows * width + starts - self.words.starts[contexts][rows]
        return Places(numbers, rows, np.where(real, begins[:, None] + columns, 0), real)
