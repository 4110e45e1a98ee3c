"""Lexicon: the vocabularies of the features of words: word forms, characters, affixes, shapes and columns.

`Lexicon.encode` encodes each distinct word form once. `UnknownCounts` counts words that are not in the training data.
"""

import re
from collections import ChainMap, Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from threading import Lock
from types import MappingProxyType
from typing import Annotated, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ensue.stored import Bounds, Copyable, Count, Stored
from ensue.text.character_ngrams import ngram_hashes
from ensue.text.tokenizer import UNKNOWN
from ensue.text.vocabulary import Vocabulary, most_frequent

MAX_CHARACTERS_READ = 32
"""The maximum number of characters of a word that the character layer reads: half from the start, half from the end."""
MIN_NGRAM_CHARACTERS = 2
"""The number of characters of the shortest n-grams of characters."""
_DIGIT = re.compile(r"\d")
_SHAPES = (
    (re.compile(r"[^\W\d_]", re.UNICODE), lambda m: "X" if m[0].isupper() else "x"),
    (_DIGIT, "d"),
    (re.compile(r"([Xx.d-])\1{2,}"), r"\1\1\1"),
)


class WordForms(NamedTuple):
    """The features of U word forms; zeros for features that a lexicon does not use.

    `words`, `shapes` and `vectors` (U,) are ids. `characters` (U, L) are character ids, and `lengths` (U,) their number
    in each word. `affixes` (U, A) are the ids of prefixes and suffixes. `keys` identify words: the ids of known words
    and negative hashes of unknown words (U,), or these and the hashes of n-grams of characters (U, 1 + G).
    """

    words: NDArray[np.int64]
    characters: NDArray[np.int64]
    lengths: NDArray[np.int64]
    affixes: NDArray[np.int64]
    shapes: NDArray[np.int64]
    vectors: NDArray[np.int64]
    keys: NDArray[np.int64]

    def select(self, indices: NDArray[np.int64]) -> "WordForms":
        """Return the features of some forms, without columns that are padding for all of these forms."""
        width = int(self.lengths[indices].max(initial=0))
        return WordForms(*(feature[indices] for feature in self._replace(characters=self.characters[:, :width])))


def check_unknown(vocabulary: Vocabulary) -> None:
    """Raise ValueError unless symbol 0 is `<unk>`."""
    if vocabulary.symbols[:1] != (UNKNOWN,):
        raise ValueError(f"the first symbol must be {UNKNOWN}")


Symbols = Annotated[Vocabulary, check_unknown]


class Lexicon(Stored):
    """The vocabularies of the features of words. Id 0 of each vocabulary is the unknown symbol.

    `longest_affix` is the maximum number of characters in an affix; 0 disables affixes. `vectors` are the words with a
    pretrained vector. The last `kept_vectors` words of `vectors` are not in the training data; they are frequent words
    from the file of pretrained vectors. `character_ngrams` is the number of characters of the longest n-grams; 0: none.
    """

    kind = "lexicon"
    optional_keys = frozenset({"kept_vectors", "character_ngrams"})

    def __init__(
        self, *, words: Symbols, lowercase: bool, fold_digits: bool, characters: Symbols | None = None,
        affixes: Symbols | None = None, longest_affix: Annotated[int, Bounds(0, 1000)] = 0,
        shapes: Symbols | None = None, columns: Mapping[str, Symbols] = MappingProxyType({}),
        vectors: Symbols | None = None, kept_vectors: Count = 0, character_ngrams: Annotated[int, Bounds(0, 100)] = 0,
    ) -> None:  # fmt: skip
        if kept_vectors >= max(1, len(vectors or ())):
            raise ValueError("kept_vectors must be less than the number of vectors")
        self.words, self.lowercase, self.fold_digits = words, lowercase, fold_digits
        self.characters, self.affixes, self.longest_affix, self.shapes = characters, affixes, longest_affix, shapes
        self.columns = dict(columns)
        self.vectors, self.kept_vectors, self.character_ngrams = vectors, kept_vectors, character_ngrams
        self.added_vector_ids: dict[str, int] = {}
        """The ids of the vectors that `with_vectors` added, by word."""

    @classmethod
    def train(
        cls, counts: Mapping[str, int], *, columns: Mapping[str, Iterable[str]] | None = None, min_count: int = 1,
        max_size: int | None = None, lowercase: bool = True, fold_digits: bool = True, characters: bool = False,
        longest_affix: int = 0, min_affix_count: int = 5, shapes: bool = False,
        vectors: Collection[str] | None = None, kept_vectors: int = 0, character_ngrams: int = 0,
    ) -> "Lexicon":  # fmt: skip
        """Return a lexicon of the training data, given the frequency of each word form and the values of columns."""
        lexicon = cls(words=Vocabulary([UNKNOWN]), lowercase=lowercase, fold_digits=fold_digits)
        lexicon.longest_affix, lexicon.character_ngrams = longest_affix, character_ngrams
        normalized = zip(lexicon.normalize_all([*counts]), counts.values(), strict=True)
        lexicon.words = _count_vocabulary(normalized, min_count=min_count, limit=max_size)
        if characters:
            letters = ((letter, count) for form, count in counts.items() for letter in form)
            lexicon.characters = _count_vocabulary(letters, min_count=1)
        if longest_affix:
            affixes = ((affix, 1) for form in counts for affix in lexicon.affixes_of(form))
            lexicon.affixes = _count_vocabulary(affixes, min_count=min_affix_count)
        if shapes:
            lexicon.shapes = _count_vocabulary(((shape(form), count) for form, count in counts.items()), min_count=2)
        lexicon.columns = {name: _make_vocabulary(sorted(set(values))) for name, values in (columns or {}).items()}
        lexicon.vectors, lexicon.kept_vectors = None if vectors is None else _make_vocabulary(vectors), kept_vectors
        return lexicon

    def normalize(self, form: str) -> str:
        """Return the form under which a word is looked up: lowercased and with digits replaced by 0, as configured."""
        form = form.lower() if self.lowercase else form
        return _DIGIT.sub("0", form) if self.fold_digits else form

    def normalize_all(self, forms: Sequence[str]) -> Sequence[str]:
        """Return `normalize` of each form."""
        # one call on the joined forms is faster than many calls
        normalized = self.normalize("\n".join(forms)).split("\n")
        return normalized if len(normalized) == len(forms) else [*map(self.normalize, forms)]

    def affixes_of(self, form: str) -> list[str]:
        """Return the prefixes and suffixes of a word up to `longest_affix`, such as `u-`, `un-`, `-d` and `-ed`."""
        form = self.normalize(form)
        lengths = range(1, self.longest_affix + 1)
        return [f"{form[:n]}-" for n in lengths] + [f"-{form[-n:]}" for n in lengths]

    def encode(self, forms: Sequence[str]) -> WordForms:
        """Return the features of word forms."""
        rows: list[list[int]] = [[]] * len(forms)
        if self.characters:
            ids = self.characters.ids
            rows = [[ids.get(letter, 0) for letter in clip_characters(form)] for form in forms]
        lengths = np.array([len(row) for row in rows], np.int64)
        characters = np.zeros((len(forms), int(lengths.max(initial=0))), np.int64)
        characters[np.arange(characters.shape[1]) < lengths[:, None]] = [id for row in rows for id in row]
        normalized = self.normalize_all(forms)
        # ~ makes hashes negative; CRC-32 is the same on every machine
        ids_or_hashes = (self.words.ids.get(x) or ~crc32(x.encode("utf-8", "surrogatepass")) for x in normalized)
        keys = np.fromiter(ids_or_hashes, np.int64, len(forms))
        all_keys = np.column_stack([keys, self._hash_ngrams(normalized)]) if self.character_ngrams else keys
        shapes, vectors = _ids(self.shapes, map(shape, forms), len(forms)), self._vector_ids(forms)
        return WordForms(keys.clip(min=0), characters, lengths, self._affix_ids(forms), shapes, vectors, all_keys)

    def encode_column(self, name: str, values: Sequence[str]) -> NDArray[np.int64]:
        """Return the ids of the values of a column."""
        return _ids(self.columns[name], values, len(values))

    def _hash_ngrams(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Return the hashes of the n-grams of characters of each word (U, G), padded with 0."""
        hashes, starts = ngram_hashes([*map(clip_characters, words)], MIN_NGRAM_CHARACTERS, self.character_ngrams)
        length = MAX_CHARACTERS_READ + 2  # `<` and `>` are added
        width = sum(length + 1 - n for n in range(MIN_NGRAM_CHARACTERS, min(self.character_ngrams, length) + 1))
        padded = np.zeros((len(words), width), np.int64)
        padded[np.arange(width) < np.diff(starts)[:, None]] = 1 + hashes.astype(np.int64)
        return padded

    def _affix_ids(self, forms: Sequence[str]) -> NDArray[np.int64]:
        if self.affixes is None:
            return np.zeros((len(forms), 0), np.int64)
        ids = self.affixes.ids
        rows = [[ids.get(affix, 0) for affix in self.affixes_of(form)] for form in forms]
        return np.array(rows, np.int64).reshape(len(forms), 2 * self.longest_affix)

    def _vector_ids(self, forms: Sequence[str]) -> NDArray[np.int64]:
        """Return the id of the pretrained vector of each word, or of its lowercase form if the word has no vector."""
        if self.vectors is None:
            return np.zeros(len(forms), np.int64)
        ids = ChainMap(self.vectors.ids, self.added_vector_ids) if self.added_vector_ids else self.vectors.ids
        return np.array([ids.get(form) or ids.get(form.lower(), 0) for form in forms], np.int64)

    def with_vectors(self, words: Sequence[str]) -> "Lexicon":
        """Return a copy with vectors for these words, whose ids follow the ids of all other vectors."""
        assert self.vectors is not None
        other = copy(self)
        other.added_vector_ids = {word: len(self.vectors) + row for row, word in enumerate(words)}
        return other

    def __repr__(self) -> str:
        return f"Lexicon({len(self.words):,} words)"


def clip_characters(form: str) -> str:
    """Return the characters of a word that the character layer reads: all, or the start and the end of a long word."""
    half = MAX_CHARACTERS_READ // 2
    return form if len(form) <= MAX_CHARACTERS_READ else form[:half] + form[-half:]


def shape(form: str) -> str:
    """Return the shape of a word: `Xxxx` for Janet, `dd-dd` for 10-12. At most three equal characters are adjacent."""
    for pattern, replacement in _SHAPES:
        form = pattern.sub(replacement, form[:MAX_CHARACTERS_READ])  # type: ignore[arg-type]
    return form


def _count_vocabulary(counts: Iterable[tuple[str, int]], *, min_count: int, limit: int | None = None) -> Vocabulary:
    """Return the vocabulary of frequent symbols from pairs of a symbol and a count, which are added up."""
    totals: dict[str, int] = {}
    for symbol, count in counts:
        totals[symbol] = totals.get(symbol, 0) + count
    return _make_vocabulary(most_frequent(totals, min_count=min_count, limit=limit))


def _make_vocabulary(symbols: Iterable[str]) -> Vocabulary:
    return Vocabulary([UNKNOWN, *(symbol for symbol in symbols if symbol != UNKNOWN)])


def _ids(vocabulary: Vocabulary | None, symbols: Iterable[str], count: int) -> NDArray[np.int64]:
    if vocabulary is None:
        return np.zeros(count, np.int64)
    return np.fromiter((vocabulary.ids.get(symbol, 0) for symbol in symbols), np.int64, count)


MAX_UNKNOWN_FRACTION, MAX_NEW_FRACTION = 0.05, 0.4
"""The fractions of unknown words above which they are reported. The limit is higher for words that are not in the
training data, since every text has some new words."""


class UnknownCounts(Copyable):
    """A thread-safe counter of words that are unknown to a feature."""

    def __init__(self) -> None:
        self._lock, self._unknown, self._all = Lock(), Counter[str](), Counter[str]()

    def add(self, predicate: str, unknown: int, words: int) -> None:
        """Add counts: `unknown` out of `words` words satisfy a predicate such as "have no pretrained vector"."""
        with self._lock:
            self._unknown[predicate] += unknown
            self._all[predicate] += words

    def line(self, *, min_words: int = 0) -> str:
        """Describe in one line the predicates that hold for too many words; "" if there are none.

        Predicates about fewer than `min_words` words are left out.
        """
        with self._lock:
            counts = [(predicate, count, self._all[predicate]) for predicate, count in self._unknown.items()]
        return "; ".join(
            f"{count:,} of {words:,} words ({count / words:.0%}) {predicate}"
            for predicate, count, words in counts
            if words >= min_words
            and count > (MAX_NEW_FRACTION if predicate == NEW_WORDS else MAX_UNKNOWN_FRACTION) * words
        )


NO_VECTOR = "have no pretrained vector, neither in the run nor with --vectors"
NEW_CHARACTERS = "have characters that the training data do not have"
NEW_WORDS = "are not known from the training data"
UNSPLIT = "are text without blanks between words; ensue predict CUTTER TAGGER splits it (ensue train cut-lstm)"
