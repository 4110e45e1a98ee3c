"""The vocabularies of a model that reads words: words, characters, affixes, shapes, and values of columns.

Each distinct word form is encoded once (`Lexicon.encode`), however often it occurs. The vectors are not here. `Lacking`
counts what texts in use have that the training data do not have.
"""

from __future__ import annotations

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
from ensue.text.tokenizer import UNKNOWN
from ensue.text.vocabulary import Vocabulary, most_frequent

MOST_CHARACTERS = 32
"""The most characters that the character layer reads of a word: half of them from its start, half from its end."""
AFFIX_COUNT = 5
"""Affixes of fewer words are unknown."""
_DIGIT = re.compile(r"\d")
_SHAPES = (
    (re.compile(r"[^\W\d_]", re.UNICODE), lambda m: "X" if m[0].isupper() else "x"),
    (_DIGIT, "d"),
    (re.compile(r"([Xx.d-])\1{2,}"), r"\1\1\1"),
)


class WordForms(NamedTuple):
    """`U` word forms as numbers; 0 for what a lexicon does not use.

    `words`, `shapes` and `vectors` (U,) are ids. `characters` (U, L) are the ids of the letters, and `lengths` (U,) the
    numbers of letters. `affixes` (U, A) are the ids of the prefixes and suffixes.
    `keys` (U,) are the ids of known words. An unknown word has a number below 0, by its spelling: so equal words are
    found that the model has never seen.
    """

    words: NDArray[np.int64]
    characters: NDArray[np.int64]
    lengths: NDArray[np.int64]
    affixes: NDArray[np.int64]
    shapes: NDArray[np.int64]
    vectors: NDArray[np.int64]
    keys: NDArray[np.int64]

    def select(self, forms: NDArray[np.int64]) -> WordForms:
        """The forms with these numbers; their characters are cut to the longest of them."""
        lengths = self.lengths[forms]
        longest = int(lengths.max(initial=0))
        return WordForms(
            self.words[forms],
            self.characters[forms, :longest],
            lengths,
            self.affixes[forms],
            self.shapes[forms],
            self.vectors[forms],
            self.keys[forms],
        )


def check_unknown(vocabulary: Vocabulary) -> None:
    """Raises ValueError unless id 0 is that of the unknown."""
    if vocabulary.symbols[:1] != (UNKNOWN,):
        raise ValueError(f"the first symbol must be {UNKNOWN}")


Known = Annotated[Vocabulary, check_unknown]


class Lexicon(Stored):
    """The vocabularies of a model that reads words. Id 0 of each stands for everything unknown.

    `longest_affix` is a number of characters, 0 for no affixes. `vectors` are the words that have a pretrained vector;
    the last `kept_vectors` of them are not of the data, but frequent in the file.
    """

    kind = "lexicon"
    later = frozenset({"kept_vectors"})

    def __init__(
        self, *, words: Known, lowercase: bool, fold_digits: bool, characters: Known | None = None,
        affixes: Known | None = None, longest_affix: Annotated[int, Bounds(0, 1000)] = 0, shapes: Known | None = None,
        columns: Mapping[str, Known] = MappingProxyType({}), vectors: Known | None = None, kept_vectors: Count = 0,
    ) -> None:  # fmt: skip
        if kept_vectors >= max(1, len(vectors or ())):
            raise ValueError("kept_vectors must be a number of vectors")
        self.words, self.lowercase, self.fold_digits = words, lowercase, fold_digits
        self.characters, self.affixes, self.longest_affix, self.shapes = characters, affixes, longest_affix, shapes
        self.columns = dict(columns)
        self.vectors, self.kept_vectors = vectors, kept_vectors
        self.looked_up: dict[str, int] = {}
        """The rows of further vectors, by word."""

    @classmethod
    def train(
        cls, counts: Mapping[str, int], *, columns: Mapping[str, Iterable[str]] | None = None, min_count: int = 1,
        max_size: int | None = None, lowercase: bool = True, fold_digits: bool = True, characters: bool = False,
        longest_affix: int = 0, shapes: bool = False, vectors: Collection[str] | None = None, kept_vectors: int = 0,
    ) -> Lexicon:  # fmt: skip
        """A lexicon from the count of each word form in the training data, and the values of the columns in use."""
        lexicon = cls(words=Vocabulary([UNKNOWN]), lowercase=lowercase, fold_digits=fold_digits)
        lexicon.longest_affix = longest_affix
        normalized = _summed(zip(lexicon.all_normalized([*counts]), counts.values(), strict=True))
        words = most_frequent(normalized, min_count=min_count, limit=max_size)
        lexicon.words = _vocabulary(words)
        if characters:
            letters = _summed((letter, count) for form, count in counts.items() for letter in form)
            lexicon.characters = _vocabulary(most_frequent(letters, min_count=1, limit=None))
        if longest_affix:
            found = _summed((affix, 1) for form in counts for affix in lexicon.affixes_of(form))
            lexicon.affixes = _vocabulary(most_frequent(found, min_count=AFFIX_COUNT, limit=None))
        if shapes:
            found = _summed((shape(form), count) for form, count in counts.items())
            lexicon.shapes = _vocabulary(most_frequent(found, min_count=2, limit=None))
        lexicon.columns = {name: _vocabulary(sorted(set(values))) for name, values in (columns or {}).items()}
        lexicon.vectors, lexicon.kept_vectors = None if vectors is None else _vocabulary(vectors), kept_vectors
        return lexicon

    def normalized(self, form: str) -> str:
        """The form by which the word's own vector is looked up."""
        form = form.lower() if self.lowercase else form
        return _DIGIT.sub("0", form) if self.fold_digits else form

    def all_normalized(self, forms: Sequence[str]) -> Sequence[str]:
        """`normalized` for each form, in one go: a line break is nobody's neighbor."""
        found = self.normalized("\n".join(forms)).split("\n")
        return found if len(found) == len(forms) else [*map(self.normalized, forms)]

    def affixes_of(self, form: str) -> list[str]:
        """`u-`, `un-`, ... `-d`, `-ed`: a prefix and a suffix of each length; for a shorter word the whole word."""
        form = self.normalized(form)
        lengths = range(1, self.longest_affix + 1)
        return [f"{form[:n]}-" for n in lengths] + [f"-{form[-n:]}" for n in lengths]

    def encode(self, forms: Sequence[str]) -> WordForms:
        """The ids of word forms."""
        letters = [self._letters(form) for form in forms] if self.characters else [[]] * len(forms)
        lengths = np.array([len(ids) for ids in letters], np.int64)
        characters = np.zeros((len(forms), int(lengths.max(initial=0))), np.int64)
        characters[np.arange(characters.shape[1]) < lengths[:, None]] = [id for ids in letters for id in ids]
        keys = self._keys(forms)
        return WordForms(
            words=keys.clip(min=0),
            characters=characters,
            lengths=lengths,
            affixes=self._affix_ids(forms),
            shapes=np.zeros(len(forms), np.int64)
            if self.shapes is None
            else _ids(self.shapes, map(shape, forms), len(forms)),
            vectors=self._vector_ids(forms),
            keys=keys,
        )

    def encode_column(self, name: str, values: Sequence[str]) -> NDArray[np.int64]:
        """The ids of a column's values."""
        return _ids(self.columns[name], values, len(values))

    def _keys(self, forms: Sequence[str]) -> NDArray[np.int64]:
        ids = self.words.ids
        found = (ids.get(word) or _number(word) for word in self.all_normalized(forms))
        return np.fromiter(found, np.int64, len(forms))

    def _letters(self, form: str) -> list[int]:
        if self.characters is None:
            return []
        ids = self.characters.ids
        return [ids.get(letter, 0) for letter in letters(form)]

    def _affix_ids(self, forms: Sequence[str]) -> NDArray[np.int64]:
        if self.affixes is None:
            return np.zeros((len(forms), 0), np.int64)
        ids = self.affixes.ids
        found = [[ids.get(affix, 0) for affix in self.affixes_of(form)] for form in forms]
        return np.array(found, np.int64).reshape(len(forms), 2 * self.longest_affix)

    def _vector_ids(self, forms: Sequence[str]) -> NDArray[np.int64]:
        """The ids of pretrained vectors: that of the word itself, or of its lowercased form."""
        if self.vectors is None:
            return np.zeros(len(forms), np.int64)
        ids = ChainMap(self.vectors.ids, self.looked_up) if self.looked_up else self.vectors.ids
        return np.array([ids.get(form) or ids.get(form.lower(), 0) for form in forms], np.int64)

    def beside(self, words: Sequence[str]) -> Lexicon:
        """A lexicon in which these words have vectors too, behind all others."""
        assert self.vectors is not None
        other = copy(self)
        other.looked_up = {word: len(self.vectors) + row for row, word in enumerate(words)}
        return other

    def __repr__(self) -> str:
        return f"Lexicon({len(self.words):,} words)"


def letters(form: str) -> str:
    """The characters of a word that the character layer reads; for a long word its start and its end."""
    half = MOST_CHARACTERS // 2
    return form if len(form) <= MOST_CHARACTERS else form[:half] + form[-half:]


def shape(form: str) -> str:
    """`Xxxx` for Janet, `dd-dd` for 10-12: letters as X or x, digits as d, runs cut to three."""
    for pattern, replacement in _SHAPES:
        form = pattern.sub(replacement, form[:MOST_CHARACTERS])  # type: ignore[arg-type]
    return form


def _summed(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """How often each symbol occurs."""
    found: dict[str, int] = {}
    for symbol, count in counts:
        found[symbol] = found.get(symbol, 0) + count
    return found


def _vocabulary(symbols: Iterable[str]) -> Vocabulary:
    return Vocabulary([UNKNOWN, *(symbol for symbol in symbols if symbol != UNKNOWN)])


def _number(word: str) -> int:
    """Below 0, and the same on every machine."""
    return ~crc32(word.encode("utf-8", "surrogatepass"))


def _ids(vocabulary: Vocabulary, symbols: Iterable[str], count: int) -> NDArray[np.int64]:
    ids = vocabulary.ids
    return np.fromiter((ids.get(symbol, 0) for symbol in symbols), np.int64, count)


FEW, MANY = 0.05, 0.4
"""Shares of words. Any text has words that are new, so these are worth a line only where they are many."""


class Lacking(Copyable):
    """Counts, of the words of texts, those for which a feature has nothing. Threads may share it."""

    def __init__(self) -> None:
        self._lock, self._lacking, self._all = Lock(), Counter[str](), Counter[str]()

    def add(self, what: str, lacking: int, words: int) -> None:
        """So many of `words` lack something; `what` says it behind their number."""
        with self._lock:
            self._lacking[what] += lacking
            self._all[what] += words

    def line(self, *, few: float = FEW, least: int = 0) -> str:
        """A line about what more than a few percent of the words lack; "" if there is none, or before `least` words."""
        with self._lock:
            found = [(what, count, self._all[what]) for what, count in self._lacking.items()]
        return "; ".join(
            f"{count:,} of {words:,} words ({count / words:.0%}) {what}"
            for what, count, words in found
            if words >= least and count > (MANY if what == NEW else few) * words
        )


NO_VECTOR = "have no pretrained vector, neither in the run nor with --vectors"
NEW_CHARACTERS = "have characters that the training data do not have"
NEW = "are not known from the training data"


def new_value(column: str) -> str:
    """Of a column of the data."""
    return f'have a value of the column "{column}" that the training data do not have'
