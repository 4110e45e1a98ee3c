"""One id for each Unicode character of the training text. Encoding is one table look-up per code point."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ensue.stored import Copyable
from ensue.text.tokenizer import UNKNOWN, Decoder, VocabularyTokenizer
from ensue.text.vocabulary import Vocabulary, most_frequent

CODE_POINTS = 0x110000
FIRST_SURROGATE, AFTER_SURROGATES = 0xD800, 0xE000
REPLACEMENT = "\ufffd"


class CharacterTokenizer(Copyable, VocabularyTokenizer):
    """`<unk>` is id 0, the known characters follow by code point. An unknown character is decoded as U+FFFD."""

    kind = "characters"
    unknown_id: int = 0
    first = (UNKNOWN,)

    def __init__(self, symbols: Iterable[str], *, lowercase: bool = False) -> None:
        super().__init__(symbols, lowercase=lowercase)
        if any(len(symbol) != 1 for symbol in self.symbols[1:]):
            raise ValueError("a symbol is not one character")
        self.start_id = int(self._table[ord("\n")])

    @cached_property
    def _table(self) -> NDArray[np.uint32]:
        """The id of each code point (U+10FFFF + 1,)."""
        table = np.zeros(CODE_POINTS, np.uint32)
        table[[ord(character) for character in self.symbols[1:]]] = np.arange(1, self.vocabulary_size)
        return table

    @classmethod
    def train(
        cls, chunks: Iterable[str], *, min_count: int = 1, max_size: int | None = None, lowercase: bool = False
    ) -> Self:
        """The characters of `chunks` that occur `min_count` times; `max_size` counts `<unk>` too."""
        totals = np.zeros(0, np.int64)
        for chunk in chunks:
            counts = np.bincount(code_points(chunk.lower() if lowercase else chunk), minlength=len(totals))
            totals = counts + np.pad(totals, (0, len(counts) - len(totals)))
        totals[FIRST_SURROGATE:AFTER_SURROGATES] = 0  # a surrogate is half of a character
        seen = {chr(point): int(totals[point]) for point in np.flatnonzero(totals)}
        kept = most_frequent(seen, min_count=min_count, limit=None if max_size is None else max_size - 1)
        return cls([UNKNOWN, *sorted(kept)], lowercase=lowercase)

    def decoder(self) -> Decoder:
        return _CharacterDecoder(self.vocabulary)

    def written(self, text: str) -> list[str]:
        lowered = text.lower() if self.lowercase else text
        return list(text if len(text) == len(lowered) else lowered)

    def _ids(self, text: str) -> NDArray[np.uint32]:
        return self._table[code_points(text)]


class _CharacterDecoder(Decoder):
    def __init__(self, vocabulary: Vocabulary) -> None:
        self._pieces = (REPLACEMENT, *vocabulary.symbols[1:])

    def feed(self, id: int) -> str:
        return self._pieces[id]


def code_points(text: str) -> NDArray[np.uint32]:
    """The code points of `text`, lone surrogates included."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
