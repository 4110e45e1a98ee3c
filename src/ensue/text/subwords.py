"""Byte-level byte-pair encoding, trained on the corpus by the `tokenizers` library, which is imported at first use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from ensue.text.boundaries import BLANKS, last_boundary
from ensue.text.pieces import (
    START,
    PieceIds,
    import_library,
    library_form,
    library_tokenizer,
    special_ids,
    with_offsets,
)
from ensue.text.tokenizer import Decoder, Tokenizer
from ensue.text.utf8 import Utf8Decoder, shown, without_surrogates

if TYPE_CHECKING:
    from tokenizers import Tokenizer as LibraryTokenizer

DEFAULT_SIZE = 2048
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
SMALLEST_SIZE = 256
TRAINING_CHARACTERS = 1 << 16
_PIECE = re.compile(rf"\s*\S+(?:(?![{BLANKS}])\s+(?:\S+|\Z))*|\s+")
"""Matches parts of a text that end at a boundary (`boundaries.py`). Each can be encoded by itself."""


class SubwordTokenizer(Tokenizer):
    """Pieces of words, made of bytes: nothing is unknown, and every text is decoded exactly.

    Source: Sennrich et al. 2016; over bytes, Radford et al. 2019. The first 256 ids are the single bytes. A published
    vocabulary has `special` tokens too, by what they are for; its texts have no blank before them. Raises ValueError
    for ids with gaps, a special token that is not there, and a vocabulary without a byte.
    """

    kind = "bpe"
    later = frozenset({"special"})
    unknown_id = None
    joins_blanks = True

    def __init__(
        self, library: LibraryTokenizer, *, lowercase: bool = False, special: Mapping[str, str] | None = None
    ) -> None:
        self.library, self.lowercase, self.special = library, lowercase, dict(special or {})
        library.encode_special_tokens = True  # one that is spelled in a text is text
        self.before = "" if special else " "
        byte_of = {character: byte for byte, character in enumerate(byte_characters())}
        vocabulary = sorted(library.get_vocab().items(), key=lambda item: item[1])
        if [id for _, id in vocabulary] != list(range(len(vocabulary))):
            raise ValueError("the ids have gaps")
        names = {token.content for token in library.get_added_tokens_decoder().values()}
        self.pieces = [
            token.encode() if token in names else bytes(byte_of[character] for character in token)
            for token, _ in vocabulary
        ]
        """The bytes of each token."""
        self.vocabulary_size = len(self.pieces)
        if missing := {bytes([byte]) for byte in range(256)}.difference(self.pieces):
            raise ValueError(f"the vocabulary has no token for the byte 0x{min(missing).hex()}")
        self.special_ids = special_ids(library, self.special)
        self.start_id = self.special_ids.get(START, self.pieces.index(b"\n"))
        self._ids_of_pieces = PieceIds(library)

    @classmethod
    def train(
        cls, chunks: Iterable[str], *, min_count: int = 1, max_size: int | None = None, lowercase: bool = False
    ) -> Self:
        """Merges the most frequent pairs of `chunks`, as long as they occur `min_count` times.

        `max_size` (2,048) is the vocabulary's size; it always has the 256 bytes.
        """
        library = import_library()
        trainer = library.trainers.BpeTrainer(
            vocab_size=max(max_size or DEFAULT_SIZE, SMALLEST_SIZE),
            min_frequency=min_count,
            show_progress=False,
            initial_alphabet=byte_characters(),
        )
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        texts = (without_surrogates(chunk.lower() if lowercase else chunk) for chunk in chunks)
        tokenizer.train_from_iterator((part for text in texts for part in _parts(text)), trainer)
        return cls(tokenizer, lowercase=lowercase)

    def decoder(self) -> Decoder:
        return Utf8Decoder(self.pieces)

    def symbol(self, id: int) -> str:
        return shown(self.pieces[id])

    @classmethod
    def _restored(cls, tokenizer: dict[str, Any], lowercase: bool, special: dict[str, str] | None = None) -> Self:
        return cls(library_tokenizer(tokenizer), lowercase=lowercase, special=special)

    @property
    def tokenizer(self) -> dict[str, Any]:
        """The library's form of it."""
        return library_form(self.library)

    def to_json(self) -> dict[str, Any]:
        content = super().to_json()
        return content if self.special else {key: value for key, value in content.items() if key != "special"}

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        ids, offsets = with_offsets(self.library, without_surrogates(text.lower() if self.lowercase else text))
        if self.lowercase and len(text) != len(text.lower()):  # a letter may become two
            lengths = [len(letter.lower()) for letter in text]
            places = np.repeat(np.arange(len(text)), lengths)
            starts, last = offsets[:, 0], np.maximum(offsets[:, 1] - 1, offsets[:, 0])
            offsets = np.stack((places[starts], places[last] + 1), axis=1)
        return ids, offsets

    def _ids(self, text: str) -> NDArray[np.uint32]:
        return self._ids_of_pieces.ids(_PIECE.findall(without_surrogates(text)))


def is_byte_level(content: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer.json has the pieces of `SubwordTokenizer`: bytes, split as those of GPT-2."""
    model, splitter = content.get("model") or {}, content.get("pre_tokenizer") or {}
    return (
        model.get("type") == "BPE"
        and not any(model.get(key) for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
        and not any(model.get(key) for key in ("byte_fallback", "ignore_merges", "fuse_unk"))
        and content.get("normalizer") is None
        and all(splitter.get(key, key == "use_regex") == value for key, value in _BYTE_LEVEL.items())
    )


def byte_characters() -> list[str]:
    """For each byte the printable character that stands for it in the library's vocabulary.

    Bytes that are printable in Latin-1 stand for themselves; the others take the code points from 256 on, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _parts(text: str) -> Iterator[str]:
    """`text` in small parts, since the library collects hundreds of parts before it counts."""
    while len(text) > TRAINING_CHARACTERS:
        cut = last_boundary(text[:TRAINING_CHARACTERS]) or TRAINING_CHARACTERS
        yield text[:cut]
        text = text[cut:]
    yield text
