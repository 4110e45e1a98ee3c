"""Labeled sentences as a tagger reads them, and their best tags."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.buckets import by_length
from ensue.data.compact_texts import Ragged, Texts
from ensue.models.modules import device_of
from ensue.models.tagger import SentencePlaces, Tagger
from ensue.models.word_features import FormTable, Words
from ensue.nn import Posterior
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.ranks import spread
from ensue.tasks.contract.task import on_device
from ensue.tasks.words.data import EncodedTexts, stacked
from ensue.tasks.words.kept_vectors import LayersOfTexts
from ensue.tasks.words.subwords import SubwordTexts
from ensue.text.schemes import Span

READ_TOKENS, READ_ROWS = 4_096, 256
"""The most words, and the most sentences, in a batch outside of training."""


class Places(NamedTuple):
    """The sentences `numbers` (S,) of a batch, and in which of its rows each is. `places` (S, L) count the words of the
    batch row by row, `real` (S, L) says which of them there are."""

    numbers: NDArray[np.int64]
    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    real: NDArray[np.bool_]


class Passages:
    """Consecutive sentences that are read together: passage n has those from `firsts[n]` to `firsts[n + 1]`."""

    def __init__(self, sentences: Ragged, sizes: Sequence[int] | NDArray[np.int64]) -> None:
        self.sentences = sentences
        self.firsts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        self.words = sentences.joined(self.firsts)
        """A row for each passage."""

    @property
    def are_sentences(self) -> bool:
        """Whether each has one sentence."""
        return len(self.firsts) == len(self.sentences) + 1

    def numbers(self, passages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sentences of some passages, in their order."""
        sizes = self._sizes(passages)
        starts: NDArray[np.int64] = np.repeat(self.firsts[passages] - np.cumsum(sizes) + sizes, sizes)
        return starts + np.arange(len(starts))

    def _sizes(self, passages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many sentences these passages have."""
        sizes: NDArray[np.int64] = self.firsts[passages + 1] - self.firsts[passages]
        return sizes

    def places(self, passages: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> Places:
        """Return the sentences of some passages, which are the rows of a batch as wide as the longest of `among`."""
        among = passages if among is None else among
        numbers, rows = self.numbers(passages), np.repeat(np.arange(len(passages)), self._sizes(passages))
        lengths, starts = self.sentences.lengths[numbers], self.sentences.starts[numbers]
        columns = np.arange(int(self.sentences.lengths[self.numbers(among)].max(initial=0)))
        real = columns < lengths[:, None]
        width = int(self.words.lengths[among].max(initial=0))
        begins = rows * width + starts - self.words.starts[passages][rows]
        return Places(numbers, rows, np.where(real, begins[:, None] + columns, 0), real)


class LabeledTexts(NamedTuple):
    """Sentences with the labels of their file. The rows of `texts` and of `subwords` are the passages."""

    texts: EncodedTexts
    passages: Passages
    labels: Sequence[Sequence[Any]]
    words: Texts
    subwords: SubwordTexts | None = None
    misaligned: Sequence[Mapping[str, Sequence[Span]]] = ()
    """For each sentence, by column, the spans that begin or end inside of a word; empty if there are none."""

    def batch(self, passages: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> Words:
        """Return the batch of these passages, of which `row_slice` is read."""
        words = self.texts.batch(passages, device, row_slice)
        return (
            words
            if self.subwords is None
            else words._replace(subwords=self.subwords.batch(passages, device, row_slice))
        )

    def paths(self, model: Tagger) -> list[NDArray[np.int64]]:
        """Return the tags (T,) of each sentence, in order. Each word form is encoded once."""
        forms = model.features.table(self.texts.forms, device_of(model))
        return tag_texts(model, forms, self.passages, self.texts.columns, self.texts.contextual, self.subwords)[0]


def tag_texts(
    model: Tagger,
    forms: FormTable,
    passages: Passages,
    columns: Sequence[Ragged] = (),
    contextual: Sequence[LayersOfTexts] = (),
    subwords: SubwordTexts | None = None,
    *,
    with_posteriors: bool = False,
) -> tuple[list[NDArray[np.int64]], list[Posterior]]:
    """Return the tags (T,) of each text in order, and if asked for the probabilities of all paths.

    `forms` are the word forms that the words number; `contextual` are the passages' words in the layers of other
    models.
    """
    device, words = device_of(model), passages.words

    def emissions(rows: NDArray[np.int64]) -> Emissions:
        index, real = words.padded(rows), words.mask(rows)
        mask, numbers = None if real is None else on_device(real, device), on_device(index, device)
        values = on_device(stacked(list(columns), rows, index.shape), device)
        x = model.features.in_place(forms.vectors, numbers, values, [part.batch(rows, device) for part in contextual])
        read = None if subwords is None else subwords.batch(rows, device)
        return Emissions(model.emissions(x, forms.keys[numbers], mask, read), mask)

    return tag_rows(model, passages, emissions, with_posteriors=with_posteriors)


class Emissions(NamedTuple):
    """The scores of tags (B, T, K), and which of them are of real positions."""

    scores: Tensor
    mask: Tensor | None


@torch.inference_mode()
def tag_rows(
    model: Tagger,
    passages: Passages,
    emissions_of: Callable[[NDArray[np.int64]], Emissions],
    *,
    with_posteriors: bool = False,
) -> tuple[list[NDArray[np.int64]], list[Posterior]]:
    """Return the tags (T,) of each sentence in order, and if asked for the probabilities of all paths."""
    device = device_of(model)
    num_sentences, words = len(passages.sentences), passages.words
    paths: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * num_sentences
    none = Posterior.of(np.zeros((0, model.head.num_tags), np.float32), model.head.tables())
    posteriors = [none] * num_sentences if with_posteriors else []

    def tagged(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], list[Posterior]]:
        """Return the numbers of the sentences, their tags (S, T), and the probabilities of paths."""
        emissions, mask = emissions_of(rows)
        sentences = rows
        if not passages.are_sentences:
            places = passages.places(rows)
            sentences, within = places.numbers, placed(places, device)
            emissions, mask = emissions.flatten(0, 1)[within.places], within.mask
        lengths = passages.sentences.lengths[sentences].tolist()
        paths_of_batch = model.head.posteriors(emissions, lengths) if with_posteriors else []
        return sentences, model.head.best(emissions, mask).cpu().numpy(), paths_of_batch

    batches = by_length(words.lengths, batch_size=READ_ROWS, batch_tokens=READ_TOKENS)
    for sentences, tags, paths_of_batch in spread(tagged, (rows for rows in batches if words.lengths[rows].max())):
        for place, sentence in enumerate(sentences):
            paths[sentence] = tags[place, : passages.sentences.lengths[sentence]]
            if with_posteriors:
                posteriors[sentence] = paths_of_batch[place]
    return paths, posteriors


def placed(places: Places, device: torch.device) -> SentencePlaces:
    """Return the places as tensors on a device."""
    return SentencePlaces(*(on_device(part, device) for part in (places.places, places.real, places.rows)))
