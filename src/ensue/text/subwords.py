"""Byte-level byte-pair encoding, trained by the `tokenizers` library."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from ensue.errors import RecipeError
from ensue.text import pieces
from ensue.text.boundaries import BLANKS, last_boundary
from ensue.text.tokenizer import MIN_NEW_COUNT, Decoder, Tokenizer, Utf8Decoder, display_bytes, replace_surrogates

if TYPE_CHECKING:
    from tokenizers import Tokenizer as LibraryTokenizer

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
DEFAULT_SIZE, MIN_SIZE = 2048, 256
"""Numbers of tokens in a trained vocabulary. The minimum has one token for each byte."""
MAX_CHUNK_CHARACTERS = 1 << 16
"""The maximum size of a chunk in training. Small chunks save memory, since the library reads hundreds at once."""
FIRST_CODE = 0x10000
"""The code point that represents token 0 when a vocabulary is extended. Later code points are not white space."""
_PIECE = re.compile(rf"\s*\S+(?:(?![{BLANKS}])\s+(?:\S+|\Z))*|\s+")
"""Matches a piece of text that ends at a boundary (`boundaries.py`), and can therefore be encoded separately."""


class SubwordTokenizer(pieces.LibraryBacked, Tokenizer):
    """A tokenizer of byte-level byte-pair encoding. No text is unknown, and every text is decoded exactly.

    Each byte has an id. `special` maps keys to the special tokens of a published vocabulary, which adds no blank before
    a text. Raises ValueError for ids with gaps, and for special tokens and bytes without an id.

    References:
        Sennrich et al. 2016; over bytes, Radford et al. 2019.
    """

    kind = "bpe"
    optional_keys = frozenset({"special"})
    unknown_id = None
    joins_blanks = True

    def __init__(
        self, library: "LibraryTokenizer", *, lowercase: bool = False, special: Mapping[str, str] | None = None
    ) -> None:
        self.library, self.lowercase, self.special = library, lowercase, dict(special or {})
        library.encode_special_tokens = True  # special tokens that are spelled out in a text are ordinary text
        self.before = "" if special else " "
        byte_of = {character: byte for byte, character in enumerate(byte_characters())}.__getitem__
        tokens = sorted(library.get_vocab().items(), key=lambda item: item[1])
        if [id for _, id in tokens] != list(range(len(tokens))):
            raise ValueError("the ids have gaps")
        added = {token.content for token in library.get_added_tokens_decoder().values()}
        self.pieces = [token.encode() if token in added else bytes(map(byte_of, token)) for token, _ in tokens]
        """The bytes of each token."""
        self.vocabulary_size = len(self.pieces)
        if missing := {bytes([byte]) for byte in range(256)}.difference(self.pieces):
            raise ValueError(f"the vocabulary has no token for the byte 0x{min(missing).hex()}")
        self.special_ids = pieces.special_ids(library, self.special)
        self.start_id = self.special_ids.get(pieces.START, self.pieces.index(b"\n"))
        self._ids_of_pieces = pieces.PieceIds(library)

    @classmethod
    def train(
        cls, chunks: Iterable[str], *, min_count: int = 1, max_size: int | None = None, lowercase: bool = False
    ) -> Self:
        """Return a tokenizer trained by merging the most frequent pairs of pieces.

        `min_count` is the minimum frequency of a pair. `max_size` is the size of the vocabulary, at least 256; by
        default 2,048.
        """
        library = pieces.import_library()
        trainer = library.trainers.BpeTrainer(
            vocab_size=max(max_size or DEFAULT_SIZE, MIN_SIZE), min_frequency=min_count, show_progress=False,
            initial_alphabet=byte_characters(),
        )  # fmt: skip
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        tokenizer.train_from_iterator(_training_texts(chunks, lowercase=lowercase), trainer)
        return cls(tokenizer, lowercase=lowercase)

    def extend(self, chunks: Iterable[str], *, min_count: int = 1, **settings: Any) -> Any:
        """Return a tokenizer with additional merges of frequent pairs of tokens. `max_size` in `settings` is ignored.

        A pair is frequent if it occurs at least `MIN_NEW_COUNT` times in the text, and at least a quarter as often as a
        token on average. New merges are applied last, so a text has the same tokens as before, except where new merges
        join tokens.
        """
        library, tokens = pieces.import_library(), sorted(self.library.get_vocab().items(), key=lambda item: item[1])
        splitter, model, content = self.library.pre_tokenizer, self.library.model, self.tokenizer
        if len(tokens) > sys.maxunicode - FIRST_CODE:
            raise RecipeError(f"a vocabulary of {len(tokens):,} subwords cannot grow; use tuning.vocabulary=origin")
        texts = _training_texts(chunks, lowercase=self.lowercase)
        coded = Counter[str]()  # to the trainer, each token is one character
        for piece, count in Counter(piece for text in texts for piece in _PIECE.findall(text)).items():
            for word, _ in splitter.pre_tokenize_str(piece):
                coded["".join(chr(FIRST_CODE + token.id) for token in model.tokenize(word))] += count
        frequent = sum(count * len(word) for word, count in coded.items()) // (4 * len(tokens))
        trainer = library.trainers.BpeTrainer(
            vocab_size=3 * len(tokens), min_frequency=max(min_count, MIN_NEW_COUNT, frequent), show_progress=False
        )
        trained = library.Tokenizer(library.models.BPE())
        trained.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
        trained.train_from_iterator(pieces.repeat_words(coded), trainer)
        merges, ids, next_id = content["model"]["merges"], content["model"]["vocab"], len(tokens)
        known_pairs = set(map(tuple, merges))
        for pair in json.loads(trained.to_str())["model"]["merges"]:
            left, right = ("".join(tokens[ord(code) - FIRST_CODE][0] for code in side) for side in pair)
            if (left, right) not in known_pairs:  # different tokens may spell the same pair
                known_pairs.add((left, right))
                merges.append([left, right])
                next_id += ids.setdefault(left + right, next_id) == next_id
        return type(self).from_json(self.to_json() | {"tokenizer": content})

    def decoder(self) -> Decoder:
        return Utf8Decoder(self.pieces)

    def symbol(self, id: int) -> str:
        return display_bytes(self.pieces[id])

    @classmethod
    def _restored(cls, tokenizer: dict[str, Any], lowercase: bool, special: dict[str, str] | None = None) -> Self:
        return cls(pieces.library_tokenizer(tokenizer), lowercase=lowercase, special=special)

    def to_json(self) -> dict[str, Any]:
        content = super().to_json()
        return content if self.special else {key: value for key, value in content.items() if key != "special"}

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        ids, offsets = super().encode_with_offsets(text.lower() if self.lowercase else text)
        if self.lowercase and len(text) != len(text.lower()):  # some letters are two characters in lower case
            index_of = np.repeat(np.arange(len(text)), [len(letter.lower()) for letter in text])
            starts, last = offsets[:, 0], np.maximum(offsets[:, 1] - 1, offsets[:, 0])
            offsets = np.stack((index_of[starts], index_of[last] + 1), axis=1)
        return ids, offsets

    def _ids(self, text: str) -> NDArray[np.uint32]:
        return self._ids_of_pieces.ids(_PIECE.findall(replace_surrogates(text)))


def is_byte_level(content: Mapping[str, Any]) -> bool:
    """Return whether `SubwordTokenizer` can represent a tokenizer.json: byte-level BPE, split as in GPT-2."""
    model, splitter = content.get("model") or {}, content.get("pre_tokenizer") or {}
    return (
        model.get("type") == "BPE"
        and not any(model.get(key) for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
        and not any(model.get(key) for key in ("byte_fallback", "ignore_merges", "fuse_unk"))
        and content.get("normalizer") is None
        and all(splitter.get(key, key == "use_regex") == value for key, value in _BYTE_LEVEL.items())
    )


def byte_characters() -> list[str]:
    """Return the character that represents each byte in the vocabulary of the library.

    A printable byte is represented by its Latin-1 character, and another byte by the next code point from 256 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _training_texts(chunks: Iterable[str], *, lowercase: bool) -> Iterator[str]:
    """Yield a text in chunks of at most `MAX_CHUNK_CHARACTERS` characters."""
    for chunk in chunks:
        text = replace_surrogates(chunk.lower() if lowercase else chunk)
        while len(text) > MAX_CHUNK_CHARACTERS:
            cut = last_boundary(text[:MAX_CHUNK_CHARACTERS]) or MAX_CHUNK_CHARACTERS
            yield text[:cut]
            text = text[cut:]
        yield text
