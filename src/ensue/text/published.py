"""Tokenizers that come with published models and are none of the other kinds: the `tokenizers` library runs them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from ensue.text.pieces import START, import_library, library_form, library_tokenizer, special_ids, with_offsets
from ensue.text.tokenizer import UNKNOWN as UNKNOWN_WORD
from ensue.text.tokenizer import Decoder, Tokenizer, VocabularyTokenizer
from ensue.text.utf8 import without_surrogates
from ensue.text.wordpiece import BEGIN, INSIDE

if TYPE_CHECKING:
    from tokenizers import Tokenizer as LibraryTokenizer

BLANK = "▁"
"""The character for a blank in the pieces of SentencePiece."""
_LANGUAGE = re.compile(r"\s*(>>.*?<<)")
UNKNOWN = "[UNK]"
"""The purpose of the special token for everything that is not in the vocabulary."""


class PublishedTokenizer(Tokenizer):
    """The library's tokenizer as it was published, without its truncation, padding and template.

    `special` are the special tokens by what they are for: `[PAD]`, `[CLS]`, `[SEP]`, `[MASK]`, `[UNK]`, `[START]`. One
    that is spelled in a text is text. A text that is cut at a boundary may get other ids there. Raises ValueError for
    ids with gaps, and for a special token that is not there.
    """

    kind = "published"

    def __init__(self, library: LibraryTokenizer, *, special: Mapping[str, str]) -> None:
        self.library, self.special = library, dict(special)
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True
        ids = sorted(library.get_vocab(with_added_tokens=True).values())
        if ids != list(range(len(ids))):
            raise ValueError("the ids have gaps")
        self.vocabulary_size = len(ids)
        self.special_ids = special_ids(library, self.special)
        self.unknown_id = self.special_ids.pop(UNKNOWN, None)
        self.start_id = self.special_ids.get(START, self.special_ids.get(BEGIN, 0))
        self.joins_blanks = any(token.startswith((BLANK, "Ġ")) for token in library.get_vocab())
        self.inside = _inside(library)

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        return with_offsets(self.library, without_surrogates(text))

    def decoder(self) -> Decoder:
        return _StreamDecoder(self.library)

    def symbol(self, id: int) -> str:
        token = self.library.id_to_token(id) or ""
        return token.replace(BLANK, " ").replace("Ġ", " ")

    @classmethod
    def _restored(cls, tokenizer: dict[str, Any], special: dict[str, str], lowercase: bool) -> Self:
        return cls(library_tokenizer(tokenizer), special=special)

    @property
    def tokenizer(self) -> dict[str, Any]:
        """The library's form of it."""
        return library_form(self.library)

    def _ids(self, text: str) -> NDArray[np.uint32]:
        return np.array(self.library.encode(without_surrogates(text), add_special_tokens=False).ids, np.uint32)


class NumberedTokenizer(VocabularyTokenizer):
    """Pieces that a `library`'s tokenizer finds, with ids that are their places in `symbols`, as in Marian, where two
    tokenizers of SentencePiece share the numbers (Junczys-Dowmunt et al. 2018).

    A text may begin with the symbol of a language, such as `>>fra<<`. Raises ValueError for symbols without `<unk>`,
    and for one that comes twice.
    """

    kind = "numbered"
    joins_blanks = True
    before = " "

    def __init__(self, library: LibraryTokenizer, symbols: Sequence[str]) -> None:
        super().__init__(symbols)
        if UNKNOWN_WORD not in self.vocabulary.ids:
            raise ValueError(f"the vocabulary has no {UNKNOWN_WORD}")
        library.encode_special_tokens = True
        self.library, self.unknown_id = library, self.vocabulary.ids[UNKNOWN_WORD]
        self.start_id = self.unknown_id

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        text, ids = without_surrogates(text), self.vocabulary.ids
        language = _LANGUAGE.match(text)
        start = language.end() if language and language[1] in ids else 0
        encoding: Any = self.library.encode(text[start:], add_special_tokens=False)
        found = [ids.get(token, self.unknown_id) for token in encoding.tokens]
        places = np.array(encoding.offsets, np.int64).reshape(-1, 2) + start
        if start and language:
            found, places = [ids[language[1]], *found], np.concatenate(([language.span(1)], places))
        return np.array(found, np.uint32), places

    def words(self, text: str) -> list[str]:
        """The pieces of a text that are symbols."""
        return [self.symbols[id] for id in self.encode(text) if id != self.unknown_id]

    def decoder(self) -> Decoder:
        return _SymbolDecoder(self)

    def symbol(self, id: int) -> str:
        return super().symbol(id).replace(BLANK, " ")

    @classmethod
    def _restored(cls, tokenizer: dict[str, Any], symbols: list[str], lowercase: bool) -> Self:
        return cls(library_tokenizer(tokenizer), symbols)

    @property
    def tokenizer(self) -> dict[str, Any]:
        """The library's form of what finds the pieces."""
        return library_form(self.library)

    def _ids(self, text: str) -> NDArray[np.uint32]:
        return self.encode_with_offsets(text)[0]


class _SymbolDecoder(Decoder):
    """Decodes each id by itself."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._symbol = tokenizer.symbol

    def feed(self, id: int) -> str:
        return self._symbol(id)


def _inside(library: LibraryTokenizer) -> str:
    """The beginning of a piece that goes on with a word, of WordPiece alone."""
    return INSIDE if type(library.model).__name__ == "WordPiece" else ""


class _StreamDecoder(Decoder):
    """The library's own, which holds an incomplete character back."""

    def __init__(self, library: LibraryTokenizer) -> None:
        self._library = library
        self._stream = import_library().decoders.DecodeStream(skip_special_tokens=False)

    def feed(self, id: int) -> str:
        return self._stream.step(self._library, id) or ""
