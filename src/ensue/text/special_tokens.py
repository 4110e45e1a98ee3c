"""Tokenizers extended by symbols with new ids: begin, end, padding, and control tokens such as `<PL>`.

The ids of a text never contain added symbols, even if the text spells such a symbol.
"""

from collections.abc import Iterable, Sequence, Set
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ensue.stored import Stored
from ensue.text.tokenizers import Decoder, Tokenizer
from ensue.text.vocabulary import Vocabulary

BEGIN, END, PADDING, SEPARATOR, UNKNOWN_NAME = "<begin>", "<end>", "<padding>", "<separator>", "<unknown>"
SPECIAL = (BEGIN, END, PADDING, SEPARATOR, UNKNOWN_NAME)


class ExtendedTokenizer:
    """A tokenizer that adds the symbols `added` to `tokenizer`, with ids after the ids of `tokenizer`."""

    def __init__(self, tokenizer: Tokenizer, added: Iterable[str]) -> None:
        self.tokenizer = tokenizer
        self.added = tuple(added)
        self.vocabulary_size = tokenizer.vocabulary_size + len(self.added)
        self._before = tokenizer.before

    @property
    def special_ids(self) -> list[int]:
        """The ids of special tokens and added symbols, which do not occur in encoded texts."""
        return [*self.tokenizer.special_ids.values(), *range(self.tokenizer.vocabulary_size, self.vocabulary_size)]

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the ids of a text, without special tokens, (N,)."""
        return self.tokenizer.encode(self._before + text if text else text).astype(np.int64)

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """Return the text of ids, without special tokens."""
        decoder = self.decoder()
        return "".join([decoder.feed(int(id)) for id in ids]) + decoder.flush()

    def decoder(self) -> Decoder:
        """Return a new incremental decoder, which skips special tokens."""
        return _TextDecoder(self.tokenizer, set(self.special_ids), self._before)

    def symbol(self, id: int) -> str:
        """Return the text of a token for display in tables."""
        size = self.tokenizer.vocabulary_size
        return self.tokenizer.symbol(id) if id < size else self.added[id - size]


class TokenizerWithSpecials(ExtendedTokenizer, Stored):
    """A tokenizer that adds five special tokens and control tokens (`names`) to `tokenizer`.

    A decoder reads `begin_id` before the first token of a text, and predicts `end_id` after the last token. If two
    texts are read as one sequence, `separator_id` separates them. Unknown names have the id `unknown_name_id`. A name
    that is spelled like a special token has an id different from that token.
    """

    def __init__(self, tokenizer: Tokenizer, names: Iterable[str] = ()) -> None:
        self.names = Vocabulary(names)
        super().__init__(tokenizer, [*SPECIAL, *self.names.symbols])
        first = tokenizer.vocabulary_size
        self.begin_id, self.end_id, self.padding_id, self.separator_id, self.unknown_name_id = range(first, first + 5)

    def rows_in(self, old: Self) -> NDArray[np.int64]:
        """Return the id of each symbol in the smaller tokenizer `old`, (V,); -1 for a symbol that `old` lacks."""
        rows, size = np.full(self.vocabulary_size, -1), old.tokenizer.vocabulary_size
        rows[:size], first = np.arange(size), self.tokenizer.vocabulary_size
        rows[first : first + len(old.added)] = np.arange(size, old.vocabulary_size)
        return rows

    def encode_names(self, names: Iterable[str]) -> NDArray[np.int64]:
        """Return the ids of names, (N,)."""
        numbers = self.names.ids
        return np.array([self.unknown_name_id + 1 + numbers.get(name, -1) for name in names], np.int64)

    def __repr__(self) -> str:
        return f"TokenizerWithSpecials({self.tokenizer!r}, {len(self.names)} names)"


class _TextDecoder(Decoder):
    """A decoder that skips special tokens and removes the prefix that `encode` puts before the text."""

    def __init__(self, tokenizer: Tokenizer, special_ids: Set[int], before: str) -> None:
        self._inner, self._special_ids, self._before = tokenizer.decoder(), special_ids, before

    def feed(self, id: int) -> str:
        return "" if id in self._special_ids else self._strip_prefix(self._inner.feed(id))

    def flush(self) -> str:
        return self._strip_prefix(self._inner.flush())

    def _strip_prefix(self, piece: str) -> str:
        if piece:
            piece, self._before = piece.removeprefix(self._before), ""
        return piece
