"""Framing of texts: the tokens around a text, the blanks between words, and windows over long texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ensue.interruption import check_interrupted
from ensue.text.tokenizer import Tokenizer

ItemT = TypeVar("ItemT")
MAX_CALL_TOKENS = 8192
"""The maximum number of tokens, including padding, in one call of a model."""


class TextWindow(NamedTuple):
    """A window over the tokens [begin, end) of a text. Only its outputs for the tokens [first, last) are used."""

    text: int
    begin: int
    end: int
    first: int
    last: int

    @property
    def size(self) -> int:
        """The number of tokens of the text in the window."""
        return self.end - self.begin


def text_windows(text: int, size: int, max_tokens: int, *, is_causal: bool = False) -> list[TextWindow]:
    """Return windows of at most `max_tokens` tokens over a text of `size` tokens, which overlap by half or more."""
    begins = list(range(0, max(1, size - max_tokens), max(1, max_tokens // 2)))
    if begins[-1] + max_tokens < size:
        begins.append(size - max_tokens)
    edges = [left + max_tokens if is_causal else (left + max_tokens + right) // 2 for left, right in pairwise(begins)]
    bounds = [0, *edges, size]
    triples = zip(begins, bounds[:-1], bounds[1:], strict=True)
    return [TextWindow(text, begin, min(begin + max_tokens, size), first, last) for begin, first, last in triples]


def batches_by_length(items: Sequence[ItemT], lengths: Sequence[int], max_tokens: int) -> Iterator[list[ItemT]]:
    """Yield batches of items of similar length, the longest items first. A batch has at most `max_tokens` tokens,
    including padding, unless one item alone is longer.
    """
    order = sorted(range(len(items)), key=lambda index: lengths[index])
    while order:
        check_interrupted()
        size = max(1, max_tokens // lengths[order[-1]])
        batch, order = order[-size:], order[:-size]
        yield [items[index] for index in batch]


Ids = NDArray[np.int64]


class SplitWords(NamedTuple):
    """The words of a text as ids."""

    ids: Ids
    """The ids of the words and of the gaps between words."""
    counts: list[int]
    """The number of ids of each word."""
    is_gap: NDArray[np.bool_]
    """Whether an id belongs to a gap."""


@dataclass(frozen=True, kw_only=True)
class Framing:
    """The tokens around a text, `begin` and `end`, and the tokens `between` the two texts of a pair."""

    tokenizer: Tokenizer
    begin: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    first_blank: str = ""
    """The blank before the first word of a text."""
    blank: str = ""
    """The blank before a word that is not the first word."""
    gap: tuple[int, ...] = ()
    """The tokens between two words that belong to neither word."""
    unknown: tuple[int, ...] = ()
    """The tokens of an unknown word."""
    max_positions: int = 0
    """The maximum number of positions of a window; 0: no limit."""
    is_causal: bool = False
    """Whether the layers are causal. A text is represented by its last vector in causal layers, else by its first."""
    num_added: int = 0
    """The number of tokens around texts that the tokenizer lacks; their ids follow the ids of the tokenizer."""

    @classmethod
    def with_separate_words(cls, tokenizer: Tokenizer, **fields: Any) -> Self:
        """Return a framing in which the tokens of a word do not depend on other words. A blank belongs to the next word
        if the tokenizer joins blanks and words; else it is a gap.
        """
        if tokenizer.joins_blanks:
            return cls(tokenizer=tokenizer, blank=" ", **fields)
        return cls(tokenizer=tokenizer, gap=tuple(tokenizer.encode(" ").tolist()), **fields)

    def encode(self, word: str) -> Ids:
        """Return the ids of `word`, which includes the blank before it."""
        return self.tokenizer.encode(word).astype(np.int64)

    def split(self, words: Sequence[str]) -> SplitWords:
        """Return the ids of the words of a text, without the tokens around the text. A word of blanks has no ids."""
        ids, counts, is_gap = [np.zeros(0, np.int64)], [], [np.zeros(0, np.bool_)]
        gap, blank = np.zeros(0, np.int64), self.first_blank
        for word in words:
            word_ids = self.encode(blank + word) if word.strip() else ids[0]
            counts.append(len(word_ids))
            if word.strip():
                ids += [gap, word_ids]
                is_gap += [np.ones(len(gap), np.bool_), np.zeros(len(word_ids), np.bool_)]
                gap, blank = np.array(self.gap, np.int64), self.blank
        return SplitWords(np.concatenate(ids), counts, np.concatenate(is_gap))

    def windows(self, size: int, text: int = 0) -> list[TextWindow]:
        """Return windows over the `size` tokens of a text, which leave room for the tokens around the text."""
        max_tokens = max(1, self.max_positions - len(self.begin) - len(self.end)) if self.max_positions else size
        return text_windows(text, size, max_tokens, is_causal=self.is_causal)

    def add_frame(self, ids: Ids) -> Ids:
        """Return the ids of a window with the tokens `begin` and `end` around them."""
        return np.concatenate((self.begin, ids, self.end)).astype(np.int64)
