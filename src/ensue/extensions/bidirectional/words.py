"""The conversion of texts, batches and sentences to the input of bidirectional models, and the vectors of words."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.corpus.cache import load_or_train_tokenizer, tokenize
from ensue.data.mapped_file import TokenFile
from ensue.data.sources import TextSource
from ensue.extensions.bidirectional.layers import FIRST_WORD, TEXT_BEGIN, TEXT_END, BidirectionalModel
from ensue.extensions.bidirectional.recipe import CharacterWords, WordsSpecification
from ensue.models.modules import device_of
from ensue.text.character_ngrams import BOUNDARIES, PADDING, word_characters
from ensue.text.tokenizer import WordTokenizer

UNKNOWN, LINE_END = WordTokenizer.unknown_id, WordTokenizer.start_id
Ids = NDArray[np.int64]


def train_word_tokenizer(source: TextSource, tokenizer: WordTokenizer) -> WordTokenizer:
    """Return a tokenizer of all words in a text, the most frequent first, which splits texts as `tokenizer` does."""
    options: dict[str, Any] = {"splitter": tokenizer.splitter, "lowercase": tokenizer.lowercase}
    words = load_or_train_tokenizer(source, stop=None, kind="words", min_count=1, max_size=None, **options)
    assert isinstance(words, WordTokenizer)
    return words


@dataclass(frozen=True)
class WordText:
    """A text as indices of its distinct `words`. `ids` are the ids of these words in the vocabulary of the softmax."""

    tokens: TokenFile
    words: Sequence[str]
    ids: Ids

    @classmethod
    def of(cls, tokens: TokenFile, words: WordTokenizer, tokenizer: WordTokenizer) -> "WordText":
        """Return the text of `tokens`, which are ids of the tokenizer `words`."""
        id_of, symbols = tokenizer.vocabulary.ids, words.vocabulary.symbols
        return cls(tokens, symbols, np.array([id_of.get(word, UNKNOWN) for word in symbols], np.int64))

    @classmethod
    def read(cls, source: TextSource, tokenizer: WordTokenizer) -> "WordText":
        """Return the text of a source."""
        words = train_word_tokenizer(source, tokenizer)
        return cls.of(tokenize(source, words), words, tokenizer)

    @cached_property
    def unknown(self) -> int:
        """The number of tokens that are not in the vocabulary of the softmax."""
        return sum(int((self.ids[block] == UNKNOWN).sum()) for _, block in self.tokens.blocks())


class WordReader:
    """A converter of words to the input of a model: characters or ids of words, after both boundaries."""

    def __init__(self, tokenizer: WordTokenizer, table: WordsSpecification) -> None:
        self.tokenizer = tokenizer
        self.longest = table.longest if isinstance(table, CharacterWords) else None

    def rows(self, words: Sequence[str]) -> Ids:
        """Return both boundaries and U words as characters (2 + U, C) or as ids (2 + U,)."""
        if self.longest is None:
            return np.array([LINE_END, LINE_END, *self.ids(words)], np.int64)
        characters = word_characters(words, max_length=self.longest)
        rows = np.full((FIRST_WORD + len(words), max(characters.shape[1], BOUNDARIES.shape[1])), PADDING, np.int64)
        rows[:FIRST_WORD, : BOUNDARIES.shape[1]] = BOUNDARIES
        rows[FIRST_WORD:, : characters.shape[1]] = characters
        return rows

    def ids(self, words: Sequence[str]) -> list[int]:
        """Return the ids of words in the vocabulary of the softmax."""
        return [self.tokenizer.vocabulary.ids.get(word, UNKNOWN) for word in words]

    def batch(self, text: WordText, rightward: Ids, leftward: Ids) -> tuple[Ids, Ids, Ids]:
        """Return the input for rows of a text: the distinct words, and for each direction rows of indices of words.

        Each line end becomes the boundary with which the direction begins.
        """
        all_rows = np.concatenate((rightward, leftward))
        distinct = np.unique(all_rows[all_rows != LINE_END])
        indices = np.searchsorted(distinct, all_rows) + FIRST_WORD
        rows = self.rows([text.words[index] for index in distinct.tolist()])
        right, left = np.split(indices, 2)
        right = np.where(rightward == LINE_END, TEXT_BEGIN, right)
        left = np.where(leftward == LINE_END, TEXT_END, left)
        return rows, right, left

    def sentences(
        self, sentences: Sequence[Sequence[str]], device: torch.device, *, closed: bool = False
    ) -> tuple[Tensor, ...]:
        """Return the input for sentences, as `batch` does, the mask of its rows, and the ids (B, T) of the words.

        A row begins with a boundary. With `closed`, it also ends with a boundary.
        """
        distinct = dict.fromkeys(word for words in sentences for word in words)
        index_of = {word: number for number, word in enumerate(distinct, FIRST_WORD)}
        lengths = np.array([len(words) + 1 + closed for words in sentences])
        mask = np.arange(lengths.max(initial=1)) < lengths[:, None]
        rows = [[index_of[word] for word in words] for words in sentences]
        indices = np.zeros((2, *mask.shape), np.int64)
        indices[0][mask] = [i for row in rows for i in [TEXT_BEGIN, *row, *[TEXT_END] * closed]]
        indices[1][mask] = [i for row in rows for i in [TEXT_END, *row[::-1], *[TEXT_BEGIN] * closed]]
        is_word = mask[:, 1 + closed :]
        ids = np.zeros(is_word.shape, np.int64)
        ids[is_word] = [id for words in sentences for id in self.ids(words)]
        arrays = self.rows(list(distinct)), *indices, mask, ids
        return tuple(torch.from_numpy(array).to(device) for array in arrays)


MAX_CALL_WORDS = 4096
"""The largest number of words in a call of the model, with padding. A longer sentence is read by a separate call."""


def word_vectors(model: BidirectionalModel, reader: WordReader, words: Sequence[str]) -> Tensor:
    """Return the vectors (2 + U, d) of both boundaries and of words, without context."""
    blocks = [reader.rows(words[first : first + MAX_CALL_WORDS]) for first in range(0, len(words), MAX_CALL_WORDS)]
    device = device_of(model)
    first, *others = [model.words(torch.from_numpy(rows).to(device)) for rows in blocks or [reader.rows([])]]
    return torch.cat((first, *(vectors[FIRST_WORD:] for vectors in others)))
