"""The interface of a tokenizer: text to ids and back. The kinds are in the files beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ensue.stored import Stored
from ensue.text.vocabulary import Vocabulary

UNKNOWN = "<unk>"
"""The symbol of everything that is not in a vocabulary."""


class Decoder(ABC):
    """Ids to text, one id at a time. The pieces together are the text that `Tokenizer.decode` returns."""

    @abstractmethod
    def feed(self, id: int) -> str:
        """The text that becomes final with `id`; "" while a character is incomplete."""

    def flush(self) -> str:
        """The rest of the text after the last id, such as an incomplete character."""
        return ""


class Tokenizer(Stored, ABC):
    """Text to ids and back.

    A model reads `start_id` before the first token of a text: the line end if the vocabulary has one, else a special
    token or `unknown_id`. `special_ids` are those of symbols that no text has. `unknown_id` is None if nothing can be
    unknown. With `lowercase`, texts are lowercased first. `encode(a)` followed by `encode(b)` is `encode(a + b)` if b
    starts with a space, a tab or a line end and a does not end with a blank.
    """

    vocabulary_size: int
    start_id: int
    unknown_id: int | None
    lowercase: bool = False
    special_ids: Mapping[str, int] = MappingProxyType({})
    joins_blanks: bool = False
    """Whether the blank before a word is a part of its first token."""
    before: str = ""
    """A text that is put before a text, so that its first word has the tokens that it has inside of a text."""
    inside: str = ""
    """The beginning of a token that goes on with a word; "" if all are spelled alike."""

    def encode(self, text: str) -> NDArray[np.uint32]:
        """The ids of `text`, a vector. It never fails: symbols that are not in the vocabulary become `unknown_id`."""
        return self._ids(text.lower() if self.lowercase else text)

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The ids of `text`, and the characters (N, 2) of `text` from which to which each goes.

        Pieces of one character that has several ids have its place. Only subwords and WordPiece know it.
        """
        raise NotImplementedError(f"{self.kind} have no offsets")

    def written(self, text: str) -> list[str]:
        """The part of `text` that each of its ids stands for."""
        return [text[start:end] for start, end in self.encode_with_offsets(text)[1].tolist()]

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text of `ids`."""
        decoder = self.decoder()
        return "".join([decoder.feed(int(id)) for id in ids]) + decoder.flush()

    @abstractmethod
    def decoder(self) -> Decoder:
        """A new incremental decoder."""

    @abstractmethod
    def symbol(self, id: int) -> str:
        """The token's text, unescaped, as it is shown in a table."""

    @abstractmethod
    def _ids(self, text: str) -> NDArray[np.uint32]: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocabulary_size={self.vocabulary_size})"


class VocabularyTokenizer(Tokenizer):
    """A tokenizer whose ids are those of a vocabulary, which begins with the symbols `first`."""

    first: ClassVar[tuple[str, ...]] = ()

    def __init__(self, symbols: Iterable[str], *, lowercase: bool = False) -> None:
        self.vocabulary, self.lowercase = Vocabulary(symbols, first=self.first), lowercase
        self.vocabulary_size = len(self.vocabulary)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols, by their ids."""
        return self.vocabulary.symbols

    def symbol(self, id: int) -> str:
        return self.vocabulary.symbols[id]
