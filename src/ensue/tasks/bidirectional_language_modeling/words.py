"""Words as they are read: the distinct words of a text, of a batch, and of sentences, each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.corpus.cache import tokenize, trained_tokenizer
from ensue.data.corpus.token_file import TokenFile
from ensue.data.sources import TextSource
from ensue.models.bidirectional import FIRST_WORD, TEXT_BEGIN, TEXT_END
from ensue.models.word_specification import CharacterWords, WordInput
from ensue.text.word_characters import BOUNDARIES, PADDING, word_characters
from ensue.text.words import WordTokenizer

UNKNOWN, LINE_END = WordTokenizer.unknown_id, WordTokenizer.start_id
PIECE = 1 << 16

Ids = NDArray[np.int64]


def distinct_words(source: TextSource, tokenizer: WordTokenizer) -> WordTokenizer:
    """All words of a text, the most frequent first."""
    words = trained_tokenizer(
        source, stop=None, kind="words", min_count=1, max_size=None, splitter=tokenizer.splitter,
        lowercase=tokenizer.lowercase,
    )  # fmt: skip
    assert isinstance(words, WordTokenizer)
    return words


@dataclass(frozen=True)
class WordText:
    """A text as numbers of its distinct `words`; `ids` are these words' ids in the vocabulary of the softmax."""

    tokens: TokenFile
    words: Sequence[str]
    ids: Ids

    @classmethod
    def of(cls, tokens: TokenFile, words: WordTokenizer, tokenizer: WordTokenizer) -> WordText:
        """A text that is tokenized by its distinct words."""
        id_of, symbols = tokenizer.vocabulary.ids, words.vocabulary.symbols
        return cls(tokens, symbols, np.array([id_of.get(word, UNKNOWN) for word in symbols], np.int64))

    @classmethod
    def read(cls, source: TextSource, tokenizer: WordTokenizer) -> WordText:
        """The text of a source."""
        words = distinct_words(source, tokenizer)
        return cls.of(tokenize(source, words), words, tokenizer)

    @cached_property
    def unknown(self) -> int:
        """How many of the words the softmax does not know."""
        size = len(self.tokens)
        pieces = (self.tokens.read(start, min(start + PIECE, size)) for start in range(0, size, PIECE))
        return sum(int((self.ids[piece] == UNKNOWN).sum()) for piece in pieces)


class Numbered(NamedTuple):
    """Distinct words as a model reads them, and rows of their numbers for each direction."""

    words: Ids
    rightward: Ids
    leftward: Ids


class WordReader:
    """What a model reads of a word: its characters, or its id. Before each list of words stand both boundaries."""

    def __init__(self, tokenizer: WordTokenizer, table: WordInput) -> None:
        self.tokenizer = tokenizer
        self.longest = table.longest if isinstance(table, CharacterWords) else None

    def rows(self, words: Sequence[str]) -> Ids:
        """The boundaries and the words: (2 + U, characters), or ids (2 + U,)."""
        if self.longest is None:
            return np.array([LINE_END, LINE_END, *self.ids(words)], np.int64)
        found = word_characters(words, longest=self.longest)
        rows = np.full((FIRST_WORD + len(words), max(found.shape[1], BOUNDARIES.shape[1])), PADDING, np.int64)
        rows[:FIRST_WORD, : BOUNDARIES.shape[1]] = BOUNDARIES
        rows[FIRST_WORD:, : found.shape[1]] = found
        return rows

    def ids(self, words: Sequence[str]) -> list[int]:
        """The ids of words in the vocabulary, for the softmax."""
        id_of = self.tokenizer.vocabulary.ids
        return [id_of.get(word, UNKNOWN) for word in words]

    def batch(self, text: WordText, rightward: Ids, leftward: Ids) -> Numbered:
        """Rows of a text's numbers, for each direction. A line end is the boundary that this direction begins at."""
        both = np.concatenate((rightward, leftward))
        distinct = np.unique(both[both != LINE_END])
        numbers = np.searchsorted(distinct, both) + FIRST_WORD
        rows = self.rows([text.words[number] for number in distinct.tolist()])
        ends = [np.where(way == LINE_END, boundary, found) for way, boundary, found in zip(
            (rightward, leftward), (TEXT_BEGIN, TEXT_END), np.split(numbers, 2), strict=True)]  # fmt: skip
        return Numbered(rows, *ends)

    def sentences(
        self, sentences: Sequence[Sequence[str]], *, closed: bool = False
    ) -> tuple[Numbered, NDArray[np.bool_]]:
        """Sentences, each behind a boundary, and the mask (B, 1 + T). If `closed`, also before one, (B, 2 + T)."""
        number_of = {
            word: n for n, word in enumerate(dict.fromkeys(w for words in sentences for w in words), FIRST_WORD)
        }
        lengths = np.array([len(words) + 1 + closed for words in sentences])
        mask = np.arange(lengths.max(initial=1)) < lengths[:, None]
        rows = [[number_of[word] for word in words] for words in sentences]
        ways = np.zeros((2, *mask.shape), np.int64)
        ways[0][mask] = [n for row in rows for n in [TEXT_BEGIN, *row, *[TEXT_END] * closed]]
        ways[1][mask] = [n for row in rows for n in [TEXT_END, *row[::-1], *[TEXT_BEGIN] * closed]]
        return Numbered(self.rows(list(number_of)), *ways), mask
