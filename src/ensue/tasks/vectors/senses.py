"""Senses of words in sentences, from a few labeled examples: the sense whose mean vector is the nearest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ensue.data.word_uses import LabeledUse, WordUse, read_senses, read_use_pairs
from ensue.errors import DataError, EnsueError
from ensue.metrics.words import SenseScores, WordInContextScores, best_cosine, sense_scores
from ensue.tasks.vectors.text_vectors import Vectors, unit_vectors

MOST_LAYERS = 4
SENTENCES = 512
"""Sentences whose vectors of all layers are held at once."""


class Layered(Protocol):
    """A model that has vectors of words in sentences."""

    def layers_of_words(self, sentences: Sequence[Sequence[str]], *, pooling: str = "mean") -> list[Vectors]:
        """For each sentence the vectors (L, T, d) of its words in all layers."""


class Senses:
    """The senses of a word, each as the mean of the unit vectors of its examples.

    A use has the sense with the highest cosine (Loureiro et al. 2021). Its vector is the sum of the last four layers,
    or of all but the embeddings if there are fewer.
    """

    def __init__(self, model: Layered, examples: Sequence[LabeledUse]) -> None:
        if not examples:
            raise EnsueError("senses are learned from labeled examples; found none")
        self.model = model
        self.names = sorted({example.sense for example in examples})
        vectors = use_vectors(model, [example.use for example in examples])
        gold = np.array([self.names.index(example.sense) for example in examples])
        self._centers = unit_vectors(np.stack([vectors[gold == sense].mean(0) for sense in range(len(self.names))]))

    def cosines(self, uses: Sequence[WordUse]) -> NDArray[np.float64]:
        """The cosine of each use with each sense, (N, senses)."""
        vectors = use_vectors(self.model, uses) if uses else np.zeros((0, self._centers.shape[1]))
        found: NDArray[np.float64] = vectors @ self._centers.T
        return found

    def nearest(self, uses: Sequence[WordUse]) -> list[str]:
        """The sense of each use."""
        return [self.names[sense] for sense in self.cosines(uses).argmax(1)]


def use_vectors(model: Layered, uses: Sequence[WordUse]) -> NDArray[np.float64]:
    """The unit vector of each used word in its sentence, (N, d); zeros for a word that the model does not see.

    Raises EnsueError for a place at which there is no word.
    """
    if wrong := next((use for use in uses if not 0 <= use.place < len(use.words)), None):
        raise EnsueError(f"no word {wrong.place} in a sentence of {len(wrong.words)} words; the first one is 0")
    parts = (uses[first : first + SENTENCES] for first in range(0, len(uses), SENTENCES))
    found = [vector for part in parts for vector in _sums(model, part)]
    return unit_vectors(np.stack(found)) if found else np.zeros((0, 1))


def _sums(model: Layered, uses: Sequence[WordUse]) -> Iterator[NDArray[np.float64]]:
    for use, layers in zip(uses, model.layers_of_words([use.words for use in uses]), strict=True):
        last = max(1, min(MOST_LAYERS, len(layers) - 1))
        yield layers[-last:, use.place].astype(np.float64).sum(0)


def score_senses(model: Layered, location: str | Path) -> SenseScores:
    """How often the nearest sense is the right one, for the words of a folder (`data.word_uses`)."""
    found = {}
    for word in read_senses(location):
        if not word.train or not word.test:
            raise DataError(f'"{word.word}" has no use to {"test" if word.train else "learn from"}', location)
        nearest = Senses(model, word.train).nearest([example.use for example in word.test])
        found[word.word] = [(example.sense, sense) for example, sense in zip(word.test, nearest, strict=True)]
    return sense_scores(found)


def score_words_in_context(model: Layered, location: str | Path, *, threshold_from: str | Path) -> WordInContextScores:
    """How often the cosine of two uses of a word tells whether they have the same meaning, with the threshold that is
    the best for the pairs of `threshold_from`.
    """
    threshold = best_cosine(*_compared(model, threshold_from))
    cosines, is_same = _compared(model, location)
    return WordInContextScores(float(((cosines > threshold) == is_same).mean()), threshold, len(cosines))


def _compared(model: Layered, location: str | Path) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    pairs = read_use_pairs(location)
    first = use_vectors(model, [pair.first for pair in pairs])
    second = use_vectors(model, [pair.second for pair in pairs])
    return (first * second).sum(1), np.array([pair.is_same for pair in pairs])
