"""Vectors of words from the layers that read a text token by token: those of a language model, or of a translator's
encoder (CoVe, McCann et al. 2017).

A word's tokens follow from the word alone, so that no word can shift the others; blanks between words are read too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.models.layer_outputs import layer_outputs, output_sizes, widened
from ensue.models.modules import device_of, evaluating
from ensue.nn import SequenceLayer, TokenEmbedding
from ensue.tasks.texts.portable_reading import PortableReading, SubwordReading
from ensue.tasks.texts.windows import TextWindow, batches_by_length, text_windows
from ensue.tasks.vectors.contextual import ContextualPipeline, pooled_words
from ensue.tasks.vectors.text_vectors import Vectors, pooling_of
from ensue.text.tokenizer import Tokenizer

CALL_TOKENS = 8192
"""The most tokens, padding included, that are read in a call."""


class LayeredReader(NamedTuple):
    """What reads a text: vectors of tokens and layers, with what it reads before and after the tokens of a text.

    `begins` is what stands before the first word, and `most` the largest number of tokens that it reads at once (None:
    any).
    """

    features: TokenEmbedding
    layers: SequenceLayer
    tokenizer: Tokenizer
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    begins: str = ""
    most: int | None = None


class SplitWords(NamedTuple):
    """The ids of a sentence's words and of the blanks between them: how many each word has, and which are blanks."""

    ids: NDArray[np.int64]
    counts: list[int]
    is_blank: NDArray[np.bool_]


class LayeredPipeline(ContextualPipeline):
    """A pipeline whose model has a `LayeredReader`."""

    @property
    @abstractmethod
    def layered_reader(self) -> LayeredReader:
        """What reads a text."""

    @property
    def num_layers(self) -> int:
        """The number of layers, L; what enters the first one counts as a layer."""
        return len(output_sizes(self.layered_reader.layers))

    @property
    def d_layers(self) -> int:
        """The size of the largest layer, d; a smaller one has zeros behind its numbers."""
        return max(output_sizes(self.layered_reader.layers))

    def layers_of_words(self, sentences: Sequence[Sequence[str]], *, pooling: str = "mean") -> list[Vectors]:
        """For each sentence the vectors (L, T, d) of its T words in all layers, each from those of its tokens.

        Each sentence is read from its beginning. The vectors of a language model know the words up to theirs. See
        `ContextualPipeline`.
        """
        pool, reader = pooling_of(pooling), self.layered_reader
        split = [split_words(reader.tokenizer, words, begins=reader.begins) for words in sentences]
        found = [np.zeros((self.num_layers, len(one.ids), self.d_layers), np.float32) for one in split]
        plan = [window for number, one in enumerate(split) for window in _windows(reader, number, len(one.ids))]
        framing = len(reader.before) + len(reader.after)
        for some in batches_by_length(plan, [window.size + framing for window in plan], CALL_TOKENS):
            read = _read(reader, [split[window.text].ids[window.begin : window.end] for window in some])
            for window, vectors in zip(some, read, strict=True):
                within = slice(window.first - window.begin, window.last - window.begin)
                found[window.text][:, window.first : window.last] = vectors[:, within]
        return [
            pooled_words(vectors[:, ~one.is_blank], one.counts, pool) for vectors, one in zip(found, split, strict=True)
        ]

    def portable_reading(self, pooling: str) -> PortableReading:
        reader = self.layered_reader
        tokenizer = reader.tokenizer

        def layers(model: Any, ids: Tensor, mask: Tensor, segments: Tensor | None) -> list[Tensor]:
            features, layers = model.readers
            return widened(layer_outputs(layers, features(ids), mask))

        return SubwordReading(
            layers=layers,
            tokenizer=tokenizer,
            vocabulary_size=tokenizer.vocabulary_size,
            begin=reader.before,
            end=reader.after,
            first=reader.begins,
            blank=" " if tokenizer.joins_blanks else "",
            gap=() if tokenizer.joins_blanks else tuple(tokenizer.encode(" ").tolist()),
            most=reader.most or 0,
            is_causal=reader.layers.is_causal,
            pooling=pooling,
        )


def split_words(tokenizer: Tokenizer, words: Sequence[str], *, begins: str = "") -> SplitWords:
    """The ids of words with a blank between two, and `begins` before the first. A word of blanks alone has none."""
    ids, counts, is_blank = [np.zeros(0, np.int64)], [], [np.zeros(0, np.bool_)]
    blank = np.zeros(0, np.int64) if tokenizer.joins_blanks else tokenizer.encode(" ").astype(np.int64)
    for word in words:
        if not word.strip():
            counts.append(0)
            continue
        is_first = len(ids) == 1
        joined = begins if is_first else " " if tokenizer.joins_blanks else ""
        own = tokenizer.encode(joined + word).astype(np.int64)
        between = blank[:0] if is_first else blank
        ids += [between, own]
        counts.append(len(own))
        is_blank += [np.ones(len(between), np.bool_), np.zeros(len(own), np.bool_)]
    return SplitWords(np.concatenate(ids), counts, np.concatenate(is_blank))


def _windows(reader: LayeredReader, number: int, size: int) -> list[TextWindow]:
    if not size:
        return []
    most = size if reader.most is None else max(1, reader.most - len(reader.before) - len(reader.after))
    return text_windows(number, size, most, is_causal=reader.layers.is_causal)


@torch.inference_mode()
def _read(reader: LayeredReader, pieces: Sequence[NDArray[np.int64]]) -> Vectors:
    """The vectors (B, L, T, d) of the tokens of pieces, without those before and after them."""
    rows = [np.concatenate((reader.before, piece, reader.after)).astype(np.int64) for piece in pieces]
    real = np.arange(max(map(len, rows))) < np.array([len(row) for row in rows])[:, None]
    ids = np.zeros(real.shape, np.int64)
    ids[real] = np.concatenate(rows)
    device = device_of(reader.layers)
    mask = None if real.all() else torch.from_numpy(real).to(device)
    with evaluating(reader.features), evaluating(reader.layers):
        outputs = layer_outputs(reader.layers, reader.features(torch.from_numpy(ids).to(device)), mask)
    vectors: Vectors = torch.stack(widened(outputs), dim=1).float().cpu().numpy()
    return vectors[:, :, len(reader.before) :]
