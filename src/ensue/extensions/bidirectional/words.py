"""Words as they are read: the distinct words of a text, of a batch, and of sentences, each once; and their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.corpus.cache import tokenize, trained_tokenizer
from ensue.data.corpus.token_file import TokenFile
from ensue.data.sources import TextSource
from ensue.extensions.bidirectional.layers import FIRST_WORD, TEXT_BEGIN, TEXT_END, BidirectionalModel, BothDirections
from ensue.extensions.bidirectional.recipe import CharacterWords, WordsSpecification
from ensue.models.modules import device_of
from ensue.tasks.texts.framing import batches_by_length
from ensue.tasks.vectors.text_vectors import Vectors
from ensue.text.character_ngrams import BOUNDARIES, PADDING, word_characters
from ensue.text.words import WordTokenizer
from ensue.types import State

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
    """Words as a model reads them: as characters, or as ids. Before each list of words stand both boundaries."""

    def __init__(self, tokenizer: WordTokenizer, table: WordsSpecification) -> None:
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


WORDS_TOGETHER = 4096
"""The most words, padding included, that are read in a call; a longer sentence is read alone."""


def word_vectors(model: BidirectionalModel, reader: WordReader, words: Sequence[str]) -> Tensor:
    """The vectors (2 + U, d) of both boundaries and of words, which do not depend on a context."""
    found = [reader.rows(words[first : first + WORDS_TOGETHER]) for first in range(0, len(words), WORDS_TOGETHER)]
    device = device_of(model)
    first, *others = [model.words(torch.from_numpy(rows).to(device)) for rows in found or [reader.rows([])]]
    return torch.cat((first, *(vectors[FIRST_WORD:] for vectors in others)))


class SentenceReader:
    """Reads sentences, and gives the vectors (L, T, d) of their T words in all layers."""

    def __init__(self, model: BidirectionalModel, words: WordReader) -> None:
        self.model, self.words = model, words

    def read(self, sentences: Sequence[Sequence[str]]) -> list[Vectors]:
        """The vectors of the words of each sentence, which is read by itself."""
        found: list[Vectors] = [np.zeros((self.model.num_layers, 0, self.model.d_layers), np.float32)] * len(sentences)
        lengths = [len(words) + 1 for words in sentences]
        for numbers in batches_by_length(range(len(sentences)), lengths, WORDS_TOGETHER):
            some, _ = self._read([sentences[number] for number in numbers], None)
            for number, layers in zip(numbers, some, strict=True):
                found[number] = layers
        return found

    def read_on(self, sentences: Sequence[Sequence[str]], *, closed: bool) -> list[Vectors]:
        """Vectors whose directions go on from the sentence before. `closed`: both boundaries are read (first ELMo)."""
        found, state = [], None
        for words in sentences:
            (layers,), state = self._read([words], state, closed=closed)
            found.append(layers)
        return found

    @torch.inference_mode()
    def _read(
        self, sentences: Sequence[Sequence[str]], state: State, *, closed: bool = False
    ) -> tuple[list[Vectors], State]:
        device = device_of(self.model)
        numbered, mask = self.words.sentences(sentences, closed=closed)
        words, rightward, leftward = (torch.from_numpy(part).to(device) for part in numbered)
        real = torch.from_numpy(mask).to(device)
        features, state = self.model.read(words, rightward, leftward, state, mask=real)
        inside = real[:, 1 + closed :]
        if closed:
            features = [BothDirections(*(way[:, :-1] for way in both)) for both in features]
        layers = self.model.layers_of_words(features, inside, self._ids(sentences, inside))
        stacked = torch.stack(layers, 1).float().cpu().numpy()
        return [row[:, : len(words)].copy() for row, words in zip(stacked, sentences, strict=True)], state

    def _ids(self, sentences: Sequence[Sequence[str]], like: Tensor) -> Tensor:
        ids = np.zeros(like.shape[:2], np.int64)
        for row, words in enumerate(sentences):
            ids[row, : len(words)] = self.words.ids(words)
        return torch.from_numpy(ids).to(like.device)
