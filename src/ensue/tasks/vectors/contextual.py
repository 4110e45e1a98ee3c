"""Pipelines that give vectors of words in their sentences, from all layers of a model.

Those of a `LayeredPipeline` come from layers that read a text token by token: a language model's, or those of a
translator's encoder (CoVe, McCann et al. 2017). A word's tokens follow from the word alone, so that no word can shift
the others; blanks between words are read too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.arguments import check_path, check_whole
from ensue.errors import DataError, EnsueError
from ensue.extensions.bidirectional.word_uses import LabeledUse, WordUse, read_senses, read_use_pairs
from ensue.metrics.words import SenseScores, WordInContextScores, best_cosine, sense_scores
from ensue.models.language_model import padded
from ensue.models.layer_outputs import layer_outputs, output_sizes, widened
from ensue.models.modules import device_of, evaluating
from ensue.nn import SequenceLayer, TokenEmbedding
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.texts.framing import Framing, batches_by_length
from ensue.tasks.texts.portable_reading import PortableReading, SubwordReading
from ensue.tasks.vectors.text_vectors import Vectors, pooling_of, unit_vectors

MOST_LAYERS = 4
SENTENCES = 512
"""Sentences whose vectors of all layers are held at once."""


class Senses:
    """The senses of a word, each as the mean of the unit vectors of its examples.

    A use has the sense with the highest cosine (Loureiro et al. 2021). Its vector is the sum of the last four layers,
    or of all but the embeddings if there are fewer.
    """

    def __init__(self, model: ContextualPipeline, examples: Sequence[LabeledUse]) -> None:
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


def use_vectors(model: ContextualPipeline, uses: Sequence[WordUse]) -> NDArray[np.float64]:
    """The unit vector of each use (N, d); zeros for an unseen word. Raises EnsueError where there is no word."""
    if wrong := next((use for use in uses if not 0 <= use.place < len(use.words)), None):
        raise EnsueError(f"no word {wrong.place} in a sentence of {len(wrong.words)} words; the first one is 0")
    parts = (uses[first : first + SENTENCES] for first in range(0, len(uses), SENTENCES))
    found = [vector for part in parts for vector in _sums(model, part)]
    return unit_vectors(np.stack(found)) if found else np.zeros((0, 1))


def _sums(model: ContextualPipeline, uses: Sequence[WordUse]) -> Iterator[NDArray[np.float64]]:
    for use, layers in zip(uses, model.layers_of_words([use.words for use in uses]), strict=True):
        last = max(1, min(MOST_LAYERS, len(layers) - 1))
        yield layers[-last:, use.place].astype(np.float64).sum(0)


def _compared(model: ContextualPipeline, location: str | Path) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    pairs = read_use_pairs(location)
    first = use_vectors(model, [pair.first for pair in pairs])
    second = use_vectors(model, [pair.second for pair in pairs])
    return (first * second).sum(1), np.array([pair.is_same for pair in pairs])


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
        """The senses of a word from examples: a sentence's words, the word's place (from 0), its sense."""
        return Senses(self, [LabeledUse(WordUse(tuple(words), place), sense) for words, place, sense in examples])

    def sense_scores(self, location: str | Path) -> SenseScores:
        """How often the nearest sense is the right one (CoarseWSD-20; `data.word_uses`)."""
        check_path("the senses", location)
        found = {}
        for word in read_senses(location):
            if not word.train or not word.test:
                raise DataError(f'"{word.word}" has no use to {"test" if word.train else "learn from"}', location)
            nearest = Senses(self, word.train).nearest([example.use for example in word.test])
            found[word.word] = [(example.sense, sense) for example, sense in zip(word.test, nearest, strict=True)]
        return sense_scores(found)

    def word_in_context(self, location: str | Path, *, threshold_from: str | Path) -> WordInContextScores:
        """How often the cosine of two uses of a word tells whether they mean the same (WiC, MCL-WiC; `data.word_uses`).

        The threshold is the best one for the pairs of `threshold_from`, which should be others.
        """
        check_path("the pairs", location)
        check_path("the pairs", threshold_from)
        threshold = best_cosine(*_compared(self, threshold_from))
        cosines, is_same = _compared(self, location)
        return WordInContextScores(float(((cosines > threshold) == is_same).mean()), threshold, len(cosines))


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


CALL_TOKENS = 8192
"""The most tokens, padding included, that are read in a call."""


class LayeredReader(NamedTuple):
    """The parts of a model that read a text: vectors of tokens, layers, and how words are framed."""

    features: TokenEmbedding
    layers: SequenceLayer
    framing: Framing


class LayeredPipeline(ContextualPipeline):
    """A pipeline whose model has a `LayeredReader`."""

    @property
    @abstractmethod
    def layered_reader(self) -> LayeredReader:
        """The reader of texts."""

    @property
    def num_layers(self) -> int:
        """The number of layers, L; what enters the first one counts as a layer."""
        return len(output_sizes(self.layered_reader.layers))

    @property
    def d_layers(self) -> int:
        """The size of the largest layer, d; a smaller one has zeros behind its numbers."""
        return max(output_sizes(self.layered_reader.layers))

    def layers_of_words(self, sentences: Sequence[Sequence[str]], *, pooling: str = "mean") -> list[Vectors]:
        """As `ContextualPipeline`. A sentence is read from its beginning; a language model knows the words so far."""
        pool, reader = pooling_of(pooling), self.layered_reader
        framing = reader.framing
        split = [framing.split(words) for words in sentences]
        found = [np.zeros((self.num_layers, len(one.ids), self.d_layers), np.float32) for one in split]
        plan = [w for number, one in enumerate(split) if len(one.ids) for w in framing.windows(len(one.ids), number)]
        signs = len(framing.begin) + len(framing.end)
        for some in batches_by_length(plan, [window.size + signs for window in plan], CALL_TOKENS):
            read = _read(reader, [split[window.text].ids[window.begin : window.end] for window in some])
            for window, vectors in zip(some, read, strict=True):
                within = slice(window.first - window.begin, window.last - window.begin)
                found[window.text][:, window.first : window.last] = vectors[:, within]
        return [
            pooled_words(vectors[:, ~one.is_gap], one.counts, pool) for vectors, one in zip(found, split, strict=True)
        ]

    def portable_reading(self, pooling: str) -> PortableReading:
        framing = self.layered_reader.framing

        def layers(model: Any, ids: Tensor, mask: Tensor, segments: Tensor | None) -> list[Tensor]:
            features, layers = model.readers
            return widened(layer_outputs(layers, features(ids), mask))

        size = framing.tokenizer.vocabulary_size
        return SubwordReading(layers=layers, framing=framing, vocabulary_size=size, pooling=pooling)


@torch.inference_mode()
def _read(reader: LayeredReader, pieces: Sequence[NDArray[np.int64]]) -> Vectors:
    """The vectors (B, L, T, d) of the tokens of pieces, without those before and after them."""
    ids, real = padded([reader.framing.framed(piece) for piece in pieces])
    device = device_of(reader.layers)
    mask = None if real.all() else torch.from_numpy(real).to(device)
    with evaluating(reader.features), evaluating(reader.layers):
        outputs = layer_outputs(reader.layers, reader.features(torch.from_numpy(ids).to(device)), mask)
    vectors: Vectors = torch.stack(widened(outputs), dim=1).float().cpu().numpy()
    return vectors[:, :, len(reader.framing.begin) :]
