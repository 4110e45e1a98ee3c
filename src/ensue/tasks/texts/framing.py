"""How a language model reads words: the signs around a text, the blanks between its words, and its longest window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ensue.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TunedReading:
    """A text is read as `begin`, the subwords of its words, `end`; a pair with `between` between its two texts."""

    tokenizer: Tokenizer
    blank: str
    """The blank that a word has before it: "" for a model that knows no blanks."""
    first_blank: str
    """The blank that the first word of a text has before it."""
    begin: tuple[int, ...]
    between: tuple[int, ...]
    end: tuple[int, ...]
    unread: tuple[int, ...]
    """What is read in place of a word that is to be unknown."""
    most: int
    """The most positions that are read together; 0 for any number."""
    is_causal: bool
    """Whether it reads from left to right, so that the end knows the text. If not, the beginning does."""
    num_new: int
    """How many of the signs are new: they stand behind the symbols of the model."""

    def encode(self, word: str) -> NDArray[np.int64]:
        """The subwords of a word with the blank before it."""
        return self.tokenizer.encode(word).astype(np.int64)
