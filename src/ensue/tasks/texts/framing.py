"""How a model reads words: the signs around a text, the blanks between its words, and windows over what is too long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ensue.interruption import check_interrupted
from ensue.text.tokenizer import Tokenizer

ItemT = TypeVar("ItemT")


class TextWindow(NamedTuple):
    """The tokens [begin, end) of a text, read together; what is found for [first, last) is kept."""

    text: int
    begin: int
    end: int
    first: int
    last: int

    @property
    def size(self) -> int:
        """The number of tokens, without those that frame them."""
        return self.end - self.begin


def text_windows(text: int, size: int, most: int, *, is_causal: bool = False) -> list[TextWindow]:
    """Windows of at most `most` tokens over a text of `size`, which overlap by half. Each token is kept where it is
    farthest from both edges, or if `is_causal` farthest from the beginning.
    """
    begins = list(range(0, max(1, size - most), max(1, most // 2)))
    if begins[-1] + most < size:
        begins.append(size - most)
    edges = [left + most if is_causal else (left + most + right) // 2 for left, right in pairwise(begins)]
    bounds = [0, *edges, size]
    return [
        TextWindow(text, begin, min(begin + most, size), *bounds[place : place + 2])
        for place, begin in enumerate(begins)
    ]


def batches_by_length(items: Sequence[ItemT], lengths: Sequence[int], most: int) -> Iterator[list[ItemT]]:
    """The items in batches of similar length, of at most `most` tokens, padding included; the longest come first."""
    order = sorted(range(len(items)), key=lambda place: lengths[place])
    while order:
        check_interrupted()
        size = max(1, most // lengths[order[-1]])
        chosen, order = order[-size:], order[:-size]
        yield [items[place] for place in chosen]


Ids = NDArray[np.int64]


class SplitWords(NamedTuple):
    """The ids of a text's words and of the gaps between them: how many each word has, and which are of gaps."""

    ids: Ids
    counts: list[int]
    is_gap: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Framing:
    """A text is read as `begin`, the tokens of its words, `end`; a pair with `between` between its two texts."""

    tokenizer: Tokenizer
    begin: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    first: str = ""
    """The blank that the first word of a text has before it."""
    blank: str = ""
    """The blank that any other word has before it."""
    gap: tuple[int, ...] = ()
    """Tokens between two words that belong to none."""
    unread: tuple[int, ...] = ()
    """The tokens in place of a word that is to be unknown."""
    most: int = 0
    """The most positions of a window; 0 for any number."""
    is_causal: bool = False
    """Whether the layers read from left to right, so that the end knows the text. If not, the beginning does."""
    num_new: int = 0
    """How many of the signs are new: they stand behind the symbols of the model."""

    @classmethod
    def apart(cls, tokenizer: Tokenizer, **others: Any) -> Self:
        """Words whose tokens follow from the word alone: a blank is a part of one only if the tokenizer joins them."""
        if tokenizer.joins_blanks:
            return cls(tokenizer=tokenizer, blank=" ", **others)
        return cls(tokenizer=tokenizer, gap=tuple(tokenizer.encode(" ").tolist()), **others)

    def encode(self, word: str) -> Ids:
        """The ids of a word with the blank before it."""
        return self.tokenizer.encode(word).astype(np.int64)

    def split(self, words: Sequence[str]) -> SplitWords:
        """The ids of the words of a text, without its signs. A word of blanks alone has none."""
        ids, counts, is_gap = [np.zeros(0, np.int64)], [], [np.zeros(0, np.bool_)]
        gap, blank = np.zeros(0, np.int64), self.first
        for word in words:
            own = self.encode(blank + word) if word.strip() else ids[0]
            counts.append(len(own))
            if word.strip():
                ids += [gap, own]
                is_gap += [np.ones(len(gap), np.bool_), np.zeros(len(own), np.bool_)]
                gap, blank = np.array(self.gap, np.int64), self.blank
        return SplitWords(np.concatenate(ids), counts, np.concatenate(is_gap))

    def windows(self, size: int, text: int = 0) -> list[TextWindow]:
        """Windows over the tokens of a text, which leave room for the signs."""
        most = max(1, self.most - len(self.begin) - len(self.end)) if self.most else size
        return text_windows(text, size, most, is_causal=self.is_causal)

    def framed(self, ids: Ids) -> Ids:
        """The ids of a window between the signs."""
        return np.concatenate((self.begin, ids, self.end)).astype(np.int64)
