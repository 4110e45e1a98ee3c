"""A tokenizer with symbols of its own behind the ids of the text: begin, end, padding, and names such as `<PL>`.

A text can never be taken for a special token, since these have no spelling that a tokenizer would read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.stored import Stored
from ensue.text.tokenizers import Decoder, Tokenizer
from ensue.text.vocabulary import Vocabulary

BEGIN, END, PADDING, SEPARATOR, UNKNOWN_NAME = "<begin>", "<end>", "<padding>", "<separator>", "<unknown>"
SPECIAL = (BEGIN, END, PADDING, SEPARATOR, UNKNOWN_NAME)


class ExtendedTokenizer:
    """The ids of `tokenizer`, then those of the symbols `behind`, which no text has."""

    def __init__(self, tokenizer: Tokenizer, behind: Iterable[str]) -> None:
        self.tokenizer = tokenizer
        self.behind = tuple(behind)
        self.vocabulary_size = tokenizer.vocabulary_size + len(self.behind)
        self._before = tokenizer.before

    @property
    def special_ids(self) -> list[int]:
        """The ids that no text has."""
        return [*self.tokenizer.special_ids.values(), *range(self.tokenizer.vocabulary_size, self.vocabulary_size)]

    def encode(self, text: str) -> NDArray[np.int64]:
        """The ids of a text, without special tokens."""
        return self.tokenizer.encode(self._before + text if text else text).astype(np.int64)

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text of `ids`; special tokens have none."""
        decoder = self.decoder()
        return "".join([decoder.feed(int(id)) for id in ids]) + decoder.flush()

    def decoder(self) -> Decoder:
        """A new incremental decoder, which skips special tokens."""
        return _TextDecoder(self.tokenizer, set(self.special_ids), self._before)

    def symbol(self, id: int) -> str:
        """The token's text, as it is shown in a table."""
        first = self.tokenizer.vocabulary_size
        return self.tokenizer.symbol(id) if id < first else self.behind[id - first]


class TokenizerWithSpecials(ExtendedTokenizer, Stored):
    """The ids of `tokenizer`, then those of the special tokens, then those of `names`.

    A decoder reads `begin_id` before the first token of a text, and predicts `end_id` after the last. `separator_id`
    stands between two texts that are read as one. A name that is not known is `unknown_name_id`. A name may be spelled
    as a special token is; it is another token.
    """

    def __init__(self, tokenizer: Tokenizer, names: Iterable[str] = ()) -> None:
        self.names = Vocabulary(names)
        super().__init__(tokenizer, [*SPECIAL, *self.names.symbols])
        first = tokenizer.vocabulary_size
        self.begin_id, self.end_id, self.padding_id, self.separator_id, self.unknown_name_id = range(first, first + 5)

    def encode_names(self, names: Iterable[str]) -> NDArray[np.int64]:
        """The ids of names."""
        known = self.names.ids
        return np.array([self.unknown_name_id + 1 + known.get(name, -1) for name in names], np.int64)

    def __repr__(self) -> str:
        return f"TokenizerWithSpecials({self.tokenizer!r}, {len(self.names)} names)"


class _TextDecoder(Decoder):
    """Decodes what is not special, and takes off the blank that `encode` has put before the text."""

    def __init__(self, tokenizer: Tokenizer, special_ids: Set[int], before: str) -> None:
        self._inner, self._special_ids, self._before = tokenizer.decoder(), special_ids, before

    def feed(self, id: int) -> str:
        return "" if id in self._special_ids else self._taken(self._inner.feed(id))

    def flush(self) -> str:
        return self._taken(self._inner.flush())

    def _taken(self, piece: str) -> str:
        if piece:
            piece, self._before = piece.removeprefix(self._before), ""
        return piece
