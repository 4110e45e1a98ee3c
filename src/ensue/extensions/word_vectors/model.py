"""Models of word vectors, and the tokenizer from which they are built."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.data.compact_texts import Ragged
from ensue.extensions.word_vectors.examples import LINE_END
from ensue.extensions.word_vectors.recipe import StaticVectorsTable, WordVectorsRecipe
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import DamagedError
from ensue.tasks.texts.tokenizer import TokenizerParts
from ensue.text.character_ngrams import ngram_hashes
from ensue.text.published import NumberedTokenizer
from ensue.text.tokenizer import WordTokenizer

MAX_NGRAM_ROWS = 1 << 20
"""The largest number of n-gram vectors that are added at once, which bounds the memory."""


class StaticVectors(nn.Module):
    """A table of vectors (V + buckets, d): V rows of words, then a row for each bucket of n-grams.

    `ngrams` are the buckets of each word's n-grams. The vector of a word is the mean of the word's row and the rows of
    its n-grams (Bojanowski et al. 2017). Without `ngrams`, the vector of a word is its row.
    """

    def __init__(self, vocabulary_size: int, d_words: int, *, ngrams: Ragged | None = None, buckets: int = 0) -> None:
        super().__init__()
        self.vocabulary_size, self.d_words = vocabulary_size, d_words
        self.subwords = None if ngrams is None else Ragged(ngrams.values + vocabulary_size, ngrams.starts)
        bound = 1 / d_words  # as in fastText and gensim; with 1 / (2 d), as in word2vec, early steps learn less
        self.vectors = nn.Parameter(torch.empty(vocabulary_size + buckets, d_words).uniform_(-bound, bound))

    @torch.no_grad()
    def compute_word_vectors(self) -> Tensor:
        """Return the vectors of all words, (V, d)."""
        words = self.vectors[: self.vocabulary_size]
        if self.subwords is None:
            return words.clone()
        lengths = torch.from_numpy(self.subwords.lengths)
        word_ids = torch.repeat_interleave(torch.arange(self.vocabulary_size), lengths)
        rows = torch.from_numpy(self.subwords.values.astype(np.int64))
        sums = words.clone()
        for start in range(0, len(rows), MAX_NGRAM_ROWS):
            block = slice(start, start + MAX_NGRAM_ROWS)
            sums.index_add_(0, word_ids[block], self.vectors[rows[block]])
        return sums / (1 + lengths).unsqueeze(1)

    @torch.no_grad()
    def average_ngrams(self, buckets: NDArray[np.integer]) -> Tensor:
        """Return the mean vector (d,) of n-grams by their buckets; zeros without n-grams."""
        if not len(buckets):
            return self.vectors.new_zeros(self.d_words)
        return self.vectors[torch.from_numpy(buckets.astype(np.int64)) + self.vocabulary_size].mean(0)


class SampledVectors(StaticVectors):
    """A table of vectors for negative sampling, with `outputs` (V, d), the vectors of predicted words."""

    def __init__(self, vocabulary_size: int, d_words: int, *, ngrams: Ragged | None = None, buckets: int = 0) -> None:
        super().__init__(vocabulary_size, d_words, ngrams=ngrams, buckets=buckets)
        self.outputs = nn.Parameter(torch.zeros(vocabulary_size, d_words))


class CountedVectors(nn.Module):
    """The vectors and biases of words and contexts in GloVe (Pennington et al. 2014).

    The trained vector of a word is the sum of its vector as a word and its vector as a context.
    """

    subwords = None

    def __init__(self, vocabulary_size: int, d_words: int) -> None:
        super().__init__()
        self.vocabulary_size, self.d_words = vocabulary_size, d_words
        tables = (torch.empty(vocabulary_size, d_words).uniform_(-0.5 / d_words, 0.5 / d_words) for _ in range(2))
        self.vectors, self.contexts = map(nn.Parameter, tables)
        self.biases, self.context_biases = (nn.Parameter(torch.zeros(vocabulary_size)) for _ in range(2))

    def tables(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the vectors of words and contexts and the biases of both, without gradients."""
        return self.vectors.data, self.contexts.data, self.biases.data, self.context_biases.data

    @torch.no_grad()
    def compute_word_vectors(self) -> Tensor:
        """Return the vectors of all words, (V, d)."""
        return self.vectors + self.contexts


@dataclass(frozen=True)
class WordVectorParts(TokenizerParts):
    """The tokenizer of word vectors."""

    tokenizer: WordTokenizer | NumberedTokenizer

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        parts = super().read(run)
        if not isinstance(parts.tokenizer, WordTokenizer | NumberedTokenizer):
            raise DamagedError(f"{run.path / 'tokenizer.json'}: expected word tokens, found {parts.tokenizer.kind}")
        return parts

    def commands(self, recipe: WordVectorsRecipe, path: str) -> list[str]:
        return [
            f"ensue neighbors {path} WORD", f"ensue embed {path} TEXTS --json", f"ensue evaluate {path} PAIRS",
            f"ensue export {path} --format word2vec --out vectors.txt",
        ]  # fmt: skip

    def python(self, recipe: WordVectorsRecipe) -> list[str]:
        return [f"print(model.neighbors({self.tokenizer.symbol(LINE_END + 1)!r}))"]

    def build(self, recipe: WordVectorsRecipe) -> StaticVectors | CountedVectors:
        table, size = recipe.vectors, self.vocabulary_size
        if not isinstance(table, StaticVectorsTable):
            return (CountedVectors if table.kind == "glove" else StaticVectors)(size, table.d_words)
        table_class = StaticVectors if table.kind == "static" else SampledVectors
        if not table.longest_ngram:
            return table_class(size, table.d_words)
        ngrams = ngram_buckets(list(self.tokenizer.vocabulary.symbols), table)
        return table_class(size, table.d_words, ngrams=ngrams, buckets=table.ngram_buckets)


def ngram_buckets(words: list[str], table: StaticVectorsTable) -> Ragged:
    """Return the buckets of the n-grams of each word."""
    hashes, starts = ngram_hashes(words, table.shortest_ngram, table.longest_ngram)
    return Ragged((hashes % table.ngram_buckets).astype("int64"), starts)
