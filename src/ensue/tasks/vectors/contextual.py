"""Pipelines that give vectors of words in their sentences, from all layers of a model.

Those of a `LayeredPipeline` come from layers that read a text token by token: a language model's, or those of a
translator's encoder (CoVe, McCann et al. 2017). A word's tokens follow from the word alone, so that no word can shift
the others; blanks between words are read too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.arguments import check_whole
from ensue.models.language_model import padded
from ensue.models.layer_outputs import layer_outputs, output_sizes, widened
from ensue.models.modules import device_of, evaluating
from ensue.nn import SequenceLayer, TokenEmbedding
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.texts.framing import Framing, batches_by_length
from ensue.tasks.texts.portable_reading import PortableReading, SubwordReading
from ensue.tasks.vectors.text_vectors import Vectors, pooling_of


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
