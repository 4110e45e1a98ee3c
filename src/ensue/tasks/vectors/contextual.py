"""Pipelines that give vectors of words in their sentences, from all layers of a model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ensue.arguments import check_path, check_whole
from ensue.data.word_uses import LabeledUse, WordUse
from ensue.metrics.senses import SenseScores, WordInContextScores
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.texts.portable_reading import PortableReading
from ensue.tasks.vectors.senses import Senses, score_senses, score_words_in_context
from ensue.tasks.vectors.text_vectors import Vectors


class ContextualPipeline(Pipeline):
    """A model that reads a sentence and has vectors of its words in each layer. Other models take them as features."""

    @property
    @abstractmethod
    def num_layers(self) -> int:
        """The number of layers, L; the embeddings are the first."""

    @property
    @abstractmethod
    def d_layers(self) -> int:
        """The size of a vector of every layer, d."""

    @abstractmethod
    def layers_of_words(self, sentences: Sequence[Sequence[str]], *, pooling: str = "mean") -> list[Vectors]:
        """For each sentence the vectors (L, T, d) of its T words in all layers, each from those of its subwords.

        A word without subwords has zeros. A sentence may have any length. What is found does not depend on the other
        sentences. Raises EnsueError for a pooling that there is not.
        """

    def embed_words(
        self, sentences: Sequence[Sequence[str]], *, pooling: str = "mean", layer: int = -1
    ) -> list[Vectors]:
        """For each sentence of words the vectors (T, d) of its words in a layer, each from those of its subwords.

        Layer 0 are the embeddings; negative numbers count from the last. A word without subwords, such as one of
        control characters alone, has zeros. Raises EnsueError for a pooling or a layer that there is not.
        """
        chosen = checked_layer(layer, self.num_layers)
        return [layers[chosen] for layers in self.layers_of_words(sentences, pooling=pooling)]

    @abstractmethod
    def portable_reading(self, pooling: str) -> PortableReading:
        """How the layers of `layers_of_words` are read elsewhere."""

    def senses(self, examples: Sequence[tuple[Sequence[str], int, str]]) -> Senses:
        """The senses of a word. An example has the words of a sentence, the place of the word among them (from 0), and
        its sense. `nearest` of the result finds the senses of other uses.
        """
        return Senses(self, [LabeledUse(WordUse(tuple(words), place), sense) for words, place, sense in examples])

    def sense_scores(self, location: str | Path) -> SenseScores:
        """How often the nearest sense is the right one (CoarseWSD-20; `data.word_uses`)."""
        check_path("the senses", location)
        return score_senses(self, location)

    def word_in_context(self, location: str | Path, *, threshold_from: str | Path) -> WordInContextScores:
        """How often the cosine of two uses of a word tells whether they mean the same (WiC, MCL-WiC; `data.word_uses`).

        The threshold is the best one for the pairs of `threshold_from`, which should be others.
        """
        check_path("the pairs", location)
        check_path("the pairs", threshold_from)
        return score_words_in_context(self, location, threshold_from=threshold_from)


def checked_layer(layer: int, num_layers: int) -> int:
    """The number of a layer from 0 on; a negative one counts from the last."""
    check_whole("layer", layer, -num_layers, num_layers - 1)
    return layer % num_layers


def pooled_words(vectors: Vectors, counts: Sequence[int], pool: Callable[[Vectors], Vectors]) -> Vectors:
    """The vectors (L, T, d) of words from those of their subwords (L, S, d), of which word t has `counts[t]`."""
    found = np.zeros((len(vectors), len(counts), vectors.shape[-1]), np.float32)
    ends = np.cumsum(counts, dtype=np.int64).tolist()
    for word, (count, end) in enumerate(zip(counts, ends, strict=True)):
        if count:
            found[:, word] = pool(vectors[:, end - count : end])
    return found
