"""Tokenizers of published models that the library `tokenizers` runs, since no class of this package represents them."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from ensue.text.pieces import START, LibraryBacked, import_library, library_tokenizer, special_ids
from ensue.text.tokenizer import UNKNOWN as UNKNOWN_WORD
from ensue.text.tokenizer import Decoder, SymbolDecoder, Tokenizer, VocabularyTokenizer, replace_surrogates
from ensue.text.wordpiece import BEGIN, INSIDE

if TYPE_CHECKING:
    from tokenizers import Tokenizer as LibraryTokenizer

BLANK = "▁"
"""The character that represents a blank in the pieces of SentencePiece."""
_LANGUAGE = re.compile(r"\s*(>>.*?<<)")
UNKNOWN = "[UNK]"
"""The key of the special token for unknown symbols."""


class PublishedTokenizer(LibraryBacked, Tokenizer):
    """A published tokenizer, run by the library without truncation, padding and template.

    `special` has the special tokens by the keys `[PAD]`, `[CLS]`, `[SEP]`, `[MASK]`, `[UNK]` and `[START]`. A special
    token that is spelled out in a text is tokenized as ordinary text. If a text is cut at a boundary, the ids near the
    boundary may change. Raises ValueError for ids with gaps, and for a special token that has no id.
    """

    kind = "published"

    def __init__(self, library: "LibraryTokenizer", *, special: Mapping[str, str]) -> None:
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
        self.inside = INSIDE if type(library.model).__name__ == "WordPiece" else ""

    def decoder(self) -> Decoder:
        return _StreamDecoder(self.library)

    def symbol(self, id: int) -> str:
        return (self.library.id_to_token(id) or "").replace(BLANK, " ").replace("Ġ", " ")

    @classmethod
    def _restored(cls, tokenizer: dict[str, Any], special: dict[str, str], lowercase: bool) -> Self:
        return cls(library_tokenizer(tokenizer), special=special)

    def _ids(self, text: str) -> NDArray[np.uint32]:
        return np.array(self.library.encode(replace_surrogates(text), add_special_tokens=False).ids, np.uint32)


class NumberedTokenizer(LibraryBacked, VocabularyTokenizer):
    """A tokenizer that splits texts by a `library` tokenizer and numbers the pieces by its own list `symbols`.

    Several tokenizers can share `symbols`, as the two SentencePiece tokenizers of Marian do (Junczys-Dowmunt et al.
    2018). A text may begin with the symbol of a language, such as `>>fra<<`. Raises ValueError if `symbols` has
    duplicates or lacks `<unk>`.
    """

    kind = "numbered"
    extend = Tokenizer.extend
    joins_blanks = True
    before = " "

    def __init__(self, library: "LibraryTokenizer", symbols: Sequence[str]) -> None:
        super().__init__(symbols)
        if UNKNOWN_WORD not in self.vocabulary.ids:
            raise ValueError(f"the vocabulary has no {UNKNOWN_WORD}")
        library.encode_special_tokens = True
        self.library, self.unknown_id = library, self.vocabulary.ids[UNKNOWN_WORD]
        self.start_id = self.unknown_id

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        text, ids = replace_surrogates(text), self.vocabulary.ids
        language = _LANGUAGE.match(text)
        start = language.end() if language and language[1] in ids else 0
        encoding: Any = self.library.encode(text[start:], add_special_tokens=False)
        token_ids = [ids.get(token, self.unknown_id) for token in encoding.tokens]
        offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2) + start
        if start and language:
            token_ids, offsets = [ids[language[1]], *token_ids], np.concatenate(([language.span(1)], offsets))
        return np.array(token_ids, np.uint32), offsets

    def words(self, text: str) -> list[str]:
        """Return the pieces of a text without unknown pieces."""
        return [self.symbols[id] for id in self.encode(text) if id != self.unknown_id]

    def decoder(self) -> Decoder:
        return SymbolDecoder(self.symbol)

    def symbol(self, id: int) -> str:
        return super().symbol(id).replace(BLANK, " ")

    @classmethod
    def _restored(cls, tokenizer: dict[str, Any], symbols: list[str], lowercase: bool) -> Self:
        return cls(library_tokenizer(tokenizer), symbols)

    def _ids(self, text: str) -> NDArray[np.uint32]:
        return self.encode_with_offsets(text)[0]


class _StreamDecoder(Decoder):
    def __init__(self, library: "LibraryTokenizer") -> None:
        self._library = library
        self._stream = import_library().decoders.DecodeStream(skip_special_tokens=False)

    def feed(self, id: int) -> str:
        return self._stream.step(self._library, id) or ""
