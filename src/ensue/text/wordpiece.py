"""WordPiece: words, cut into the longest pieces of a vocabulary that the `tokenizers` library trains on the corpus."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from ensue.text.pieces import PieceIds, import_library, with_offsets
from ensue.text.tokenizer import Decoder, VocabularyTokenizer
from ensue.text.utf8 import without_surrogates
from ensue.text.vocabulary import Vocabulary, most_frequent

if TYPE_CHECKING:
    from tokenizers import Tokenizer as LibraryTokenizer

PADDING, UNKNOWN, BEGIN, SEPARATOR, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
INSIDE = "##"
"""The beginning of a piece that goes on with a word."""
DEFAULT_SIZE = 8192
LONGEST_WORD = 100
"""A longer word is unknown, as published."""
MOST_CHARACTERS = 1000
"""At most this many characters are in a vocabulary; words with rarer ones are unknown."""
REPEATED = 1 << 12
_UNIT = re.compile(r"[^ \t\n\r]+")


class WordPieceTokenizer(VocabularyTokenizer):
    """Words without their blanks, each cut from left to right into the longest pieces that the vocabulary has.

    Source: Schuster & Nakajima 2012; Devlin et al. 2019, whose words these are: control characters are dropped, each
    punctuation mark and each Chinese character is a word, and with `lowercase` accents are dropped too. The special
    tokens have ids of the vocabulary, but of them a text has only that of an unknown word. Raises ValueError if one is
    missing.
    """

    kind = "wordpiece"
    inside = INSIDE
    unknown_id: int

    def __init__(self, symbols: Sequence[str], *, lowercase: bool = False) -> None:
        super().__init__(symbols, lowercase=lowercase)
        if missing := [name for name in SPECIAL if name not in self.vocabulary.ids]:
            raise ValueError(f"the symbols have no {missing[0]}")
        self.special_ids = {name: self.vocabulary.ids[name] for name in SPECIAL if name != UNKNOWN}
        self.unknown_id, self.start_id = self.vocabulary.ids[UNKNOWN], self.special_ids[BEGIN]
        self.library = _library(self.vocabulary.ids, lowercase=lowercase)
        self._pieces = PieceIds(self.library)

    @classmethod
    def train(
        cls, chunks: Iterable[str], *, min_count: int = 1, max_size: int | None = None, lowercase: bool = False
    ) -> Self:
        """The special tokens, the characters of `chunks`, and what the most frequent pairs of pieces become, as long as
        they occur `min_count` times. `max_size` (8,192) is the vocabulary's size; it has a character at least.
        """
        size = max(max_size or DEFAULT_SIZE, len(SPECIAL) + 2)
        words = _words(chunks, lowercase=lowercase)
        letters: Counter[str] = Counter()
        for word, count in words.items():
            for letter in word:
                letters[letter] += count
        kept = set(most_frequent(letters, min_count=1, limit=min(MOST_CHARACTERS, (size - len(SPECIAL)) // 2)))
        words = {word: count for word, count in words.items() if kept.issuperset(word)}
        inside = {letter for word in words for letter in word[1:]}
        alphabet = [*sorted(kept), *(INSIDE + letter for letter in sorted(inside))]
        return cls(_learned(words, [*SPECIAL, *alphabet], size, min_count), lowercase=lowercase)

    def encode(self, text: str) -> NDArray[np.uint32]:
        return self._ids(text)  # the library lowers, and knows the places of the letters before it

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        return with_offsets(self.library, without_surrogates(text))

    def decoder(self) -> Decoder:
        return _PieceDecoder(self.vocabulary)

    def _ids(self, text: str) -> NDArray[np.uint32]:
        return self._pieces.ids(_UNIT.findall(without_surrogates(text)))


class _PieceDecoder(Decoder):
    """A blank before each word but the first."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._symbols, self._blank = vocabulary.symbols, ""

    def feed(self, id: int) -> str:
        symbol = self._symbols[id]
        if symbol.startswith(INSIDE) and self._blank:
            return symbol.removeprefix(INSIDE)
        blank, self._blank = self._blank, " "
        return blank + symbol


def _library(ids: Mapping[str, int], *, lowercase: bool) -> LibraryTokenizer:
    library = import_library()
    model = library.models.WordPiece(dict(ids), unk_token=UNKNOWN, max_input_chars_per_word=LONGEST_WORD)
    tokenizer: LibraryTokenizer = library.Tokenizer(model)
    tokenizer.normalizer = library.normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _words(chunks: Iterable[str], *, lowercase: bool) -> dict[str, int]:
    """The words of the text with their counts, but for those that are too long."""
    library = import_library()
    normalizer = library.normalizers.BertNormalizer(lowercase=lowercase)
    splitter = library.pre_tokenizers.BertPreTokenizer()
    units: Counter[str] = Counter()
    for chunk in chunks:
        units.update(normalizer.normalize_str(without_surrogates(chunk)).split(" "))
    words: Counter[str] = Counter()
    for unit, count in units.items():
        for word, _ in splitter.pre_tokenize_str(unit):
            words[word] += count
    return {word: count for word, count in sorted(words.items()) if len(word) <= LONGEST_WORD}


def _learned(words: Mapping[str, int], first: Sequence[str], size: int, min_count: int) -> list[str]:
    """The vocabulary, which begins with `first`.

    The library numbers the pieces inside of words in an order that changes from run to run, and breaks ties by numbers.
    Given beforehand, as if they were special, they keep their order, and a text has one vocabulary.
    """
    library = import_library()
    tokenizer = library.Tokenizer(library.models.WordPiece(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    trainer = library.trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=min_count, special_tokens=list(first), show_progress=False
    )
    tokenizer.train_from_iterator(_repeated(words), trainer)
    return sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Each word as often as it occurs, in strings of some thousand."""
    for word, count in words.items():
        whole, rest = divmod(count, REPEATED)
        yield from [f"{word} " * REPEATED] * whole
        yield f"{word} " * rest
