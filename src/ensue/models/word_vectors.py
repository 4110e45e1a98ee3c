"""Word vectors as models: tables of rows, and the vector of each word from them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.data.compact_texts import Ragged

ROWS = 1 << 20
"""Rows of n-grams that are copied at once."""


class StaticVectors(nn.Module):
    """`vectors` (V + buckets, d), a row for each word.

    With `ngrams`, a row of numbers below `buckets` for each word, the vector of a word is the mean of its own row and
    those of its n-grams (Bojanowski et al. 2017).
    """

    def __init__(self, vocabulary_size: int, d_words: int, *, ngrams: Ragged | None = None, buckets: int = 0) -> None:
        super().__init__()
        self.vocabulary_size, self.d_words = vocabulary_size, d_words
        self.subwords = None if ngrams is None else Ragged(ngrams.values + vocabulary_size, ngrams.starts)
        bound = 1 / d_words  # as in fastText and gensim; word2vec begins with half of it, and learns later
        self.vectors = nn.Parameter(torch.empty(vocabulary_size + buckets, d_words).uniform_(-bound, bound))

    @torch.no_grad()
    def of_words(self) -> Tensor:
        """The vector of each word of the vocabulary, (V, d)."""
        own = self.vectors[: self.vocabulary_size]
        if self.subwords is None:
            return own.clone()
        lengths = torch.from_numpy(self.subwords.lengths)
        owners = torch.repeat_interleave(torch.arange(self.vocabulary_size), lengths)
        rows = torch.from_numpy(self.subwords.values.astype(np.int64))
        sums = own.clone()
        for start in range(0, len(rows), ROWS):
            part = slice(start, start + ROWS)
            sums.index_add_(0, owners[part], self.vectors[rows[part]])
        return sums / (1 + lengths).unsqueeze(1)

    @torch.no_grad()
    def of_ngrams(self, numbers: NDArray[np.integer]) -> Tensor:
        """The vector (d,) of a word that is not in the vocabulary, from its n-grams; zeros if there are none."""
        if not len(numbers):
            return self.vectors.new_zeros(self.d_words)
        return self.vectors[torch.from_numpy(numbers.astype(np.int64)) + self.vocabulary_size].mean(0)


class SampledVectors(StaticVectors):
    """Vectors that are trained by negative sampling. `outputs` (V, d) are of what is predicted, zeros at first."""

    def __init__(self, vocabulary_size: int, d_words: int, *, ngrams: Ragged | None = None, buckets: int = 0) -> None:
        super().__init__(vocabulary_size, d_words, ngrams=ngrams, buckets=buckets)
        self.outputs = nn.Parameter(torch.zeros(vocabulary_size, d_words))


class CountedVectors(nn.Module):
    """GloVe's vectors and biases, of words and of contexts (Pennington et al. 2014). A word's vector is the sum."""

    subwords = None

    def __init__(self, vocabulary_size: int, d_words: int) -> None:
        super().__init__()
        self.vocabulary_size, self.d_words = vocabulary_size, d_words
        tables = (torch.empty(vocabulary_size, d_words).uniform_(-0.5 / d_words, 0.5 / d_words) for _ in range(2))
        self.vectors, self.contexts = map(nn.Parameter, tables)
        self.biases, self.context_biases = (nn.Parameter(torch.zeros(vocabulary_size)) for _ in range(2))

    def tables(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The vectors, the contexts' vectors, and the biases of both, without gradients."""
        return self.vectors.data, self.contexts.data, self.biases.data, self.context_biases.data

    @torch.no_grad()
    def of_words(self) -> Tensor:
        """The vector of each word of the vocabulary, (V, d)."""
        return self.vectors + self.contexts
