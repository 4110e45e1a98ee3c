"""How a model reads words: the signs around a text, the blanks between its words, and its longest window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ensue.tasks.texts.windows import TextWindow, text_windows
from ensue.text.tokenizer import Tokenizer

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
