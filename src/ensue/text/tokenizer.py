"""What every tokenizer can do: text to ids and back. The kinds are in the files beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

FORMAT_VERSION = 1
UNKNOWN = "<unk>"
"""The symbol of whatever is not in a vocabulary."""


class Decoder(ABC):
    """Ids to text, one id at a time; the pieces joined are what `Tokenizer.decode` gives."""

    @abstractmethod
    def feed(self, id: int) -> str:
        """The text that is final now that `id` has come; empty while a character is incomplete."""

    def flush(self) -> str:
        """What is left when no id follows."""
        return ""


class Tokenizer(ABC):
    """Text to ids and back.

    `start_id` is what a model reads before the first token of a text: a line end where the vocabulary has one, else
    `unknown_id`. `unknown_id` is None where nothing can be unknown. With `lowercase` texts are lowered before anything
    else. `encode(a)` followed by `encode(b)` is `encode(a + b)` wherever b starts with a blank and a ends without one.
    """

    kind: ClassVar[str]
    vocabulary_size: int
    start_id: int
    unknown_id: int | None
    lowercase: bool = False

    def encode(self, text: str) -> NDArray[np.uint32]:
        """The ids of `text`, one-dimensional; it never fails: what is not in the vocabulary becomes `unknown_id`."""
        return self._ids(text.lower() if self.lowercase else text)

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text of `ids`."""
        decoder = self.decoder()
        return "".join([decoder.feed(int(id)) for id in ids]) + decoder.flush()

    @abstractmethod
    def decoder(self) -> Decoder:
        """A fresh incremental decoder."""

    @abstractmethod
    def symbol(self, id: int) -> str:
        """How the token is shown in a table: its own text, unescaped."""

    def to_json(self) -> dict[str, Any]:
        """Everything that `from_json` needs, as JSON values."""
        return {"kind": self.kind, "format_version": FORMAT_VERSION, "lowercase": self.lowercase, **self._content()}

    @classmethod
    @abstractmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """The inverse of `to_json`; KeyError, TypeError or ValueError for content that cannot come from there."""

    @abstractmethod
    def _ids(self, text: str) -> NDArray[np.uint32]: ...

    @abstractmethod
    def _content(self) -> dict[str, Any]: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocabulary_size={self.vocabulary_size})"
