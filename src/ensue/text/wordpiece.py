"""WordPiece tokenizer, trained and run by the `tokenizers` library."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ensue.text.pieces import LibraryBacked, PieceIds, import_library, repeat_words
from ensue.text.tokenizer import MIN_NEW_COUNT, Decoder, VocabularyTokenizer, replace_surrogates
from ensue.text.vocabulary import Vocabulary, most_frequent

PADDING, UNKNOWN, BEGIN, SEPARATOR, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
INSIDE = "##"
"""The prefix of a piece that continues a word."""
DEFAULT_SIZE = 8192
MAX_WORD_LENGTH = 100
"""The maximum number of characters in a word. Longer words are unknown, as in BERT."""
MAX_ALPHABET = 1000
"""The maximum number of characters in a vocabulary. Words with other characters are unknown."""
_UNIT = re.compile(r"[^ \t\n\r]+")


class WordPieceTokenizer(LibraryBacked, VocabularyTokenizer):
    """A tokenizer that cuts each word from left to right into the longest pieces of the vocabulary.

    Texts are split into words as in BERT: control characters are dropped, each punctuation mark and each Chinese
    character is a word, and `lowercase` also drops accents. Encoded texts have no special tokens except `[UNK]`. Raises
    ValueError if the symbols lack a special token.

    References:
        Schuster & Nakajima 2012; Devlin et al. 2019.
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
        library = import_library()
        model = library.models.WordPiece(
            dict(self.vocabulary.ids), unk_token=UNKNOWN, max_input_chars_per_word=MAX_WORD_LENGTH
        )
        self.library = library.Tokenizer(model)
        self.library.normalizer = library.normalizers.BertNormalizer(lowercase=lowercase)
        self.library.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
        self._pieces = PieceIds(self.library)

    @classmethod
    def train(
        cls, chunks: Iterable[str], *, min_count: int = 1, max_size: int | None = None, lowercase: bool = False
    ) -> Self:
        """Return a trained tokenizer, with special tokens, characters, and merged pairs that occur `min_count` times.

        `max_size` is the size of the vocabulary, which has at least one character; by default 8,192. `lowercase` also
        drops accents.
        """
        size = max(max_size or DEFAULT_SIZE, len(SPECIAL) + 2)
        words = _count_words(chunks, lowercase=lowercase)
        letters: Counter[str] = Counter()
        for word, count in words.items():
            for letter in word:
                letters[letter] += count
        alphabet = set(most_frequent(letters, min_count=1, limit=min(MAX_ALPHABET, (size - len(SPECIAL)) // 2)))
        words = {word: count for word, count in words.items() if alphabet.issuperset(word)}
        inside = {letter for word in words for letter in word[1:]}
        first = [*SPECIAL, *sorted(alphabet), *(INSIDE + letter for letter in sorted(inside))]
        return cls(_train_vocabulary(words, first, size, min_count), lowercase=lowercase)

    def extend(self, chunks: Iterable[str], *, min_count: int = 1, **settings: Any) -> Any:
        """Return a tokenizer with new pieces for unknown words. The pieces of other words do not change."""
        units = (unit for chunk in chunks for unit in _UNIT.findall(chunk) if self.unknown_id in self._ids(unit))
        return super().extend((f"{unit} " for unit in units), min_count=max(min_count, MIN_NEW_COUNT), **settings)

    def encode(self, text: str) -> NDArray[np.uint32]:
        return self._ids(text)  # the library lowercases, so that offsets refer to the original text

    def decoder(self) -> Decoder:
        return _PieceDecoder(self.vocabulary)

    def _ids(self, text: str) -> NDArray[np.uint32]:
        return self._pieces.ids(_UNIT.findall(replace_surrogates(text)))


class _PieceDecoder(Decoder):
    def __init__(self, vocabulary: Vocabulary) -> None:
        self._symbols, self._blank = vocabulary.symbols, ""

    def feed(self, id: int) -> str:
        symbol = self._symbols[id]
        if symbol.startswith(INSIDE) and self._blank:
            return symbol.removeprefix(INSIDE)
        blank, self._blank = self._blank, " "
        return blank + symbol


def _count_words(chunks: Iterable[str], *, lowercase: bool) -> dict[str, int]:
    library = import_library()
    normalizer = library.normalizers.BertNormalizer(lowercase=lowercase)
    splitter = library.pre_tokenizers.BertPreTokenizer()
    units: Counter[str] = Counter()
    for chunk in chunks:
        units.update(normalizer.normalize_str(replace_surrogates(chunk)).split(" "))
    words: Counter[str] = Counter()
    for unit, count in units.items():
        for word, _ in splitter.pre_tokenize_str(unit):
            words[word] += count
    return {word: count for word, count in sorted(words.items()) if len(word) <= MAX_WORD_LENGTH}


def _train_vocabulary(words: Mapping[str, int], first: Sequence[str], size: int, min_count: int) -> list[str]:
    """Return a vocabulary that begins with `first`, in this order, which breaks ties of merged pairs."""
    library = import_library()
    tokenizer = library.Tokenizer(library.models.WordPiece(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    trainer = library.trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=min_count, special_tokens=list(first), show_progress=False
    )
    tokenizer.train_from_iterator(repeat_words(words), trainer)
    return sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)
