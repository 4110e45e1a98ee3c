"""The vectors that a bidirectional model has of words, of words in their sentences, and of contexts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ensue.models.bidirectional import FIRST_WORD, BidirectionalModel, BothWays
from ensue.models.modules import device_of
from ensue.tasks.bidirectional_language_modeling.words import WordReader
from ensue.tasks.texts.windows import batches_by_length
from ensue.tasks.vectors.text_vectors import Vectors
from ensue.types import State

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
        """The same where each direction goes on from its state after the sentence before.

        `closed`: the boundaries on both sides of a sentence are read, as in the first programs of ELMo.
        """
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
            features = [BothWays(*(way[:, :-1] for way in both)) for both in features]
        layers = self.model.layers_of_words(features, inside, self._ids(sentences, inside))
        stacked = torch.stack(layers, 1).float().cpu().numpy()
        return [row[:, : len(words)].copy() for row, words in zip(stacked, sentences, strict=True)], state

    def _ids(self, sentences: Sequence[Sequence[str]], like: Tensor) -> Tensor:
        ids = np.zeros(like.shape[:2], np.int64)
        for row, words in enumerate(sentences):
            ids[row, : len(words)] = self.words.ids(words)
        return torch.from_numpy(ids).to(like.device)
