"""Labeling: a tag for every word of a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.buckets import by_length
from ensue.data.compact_texts import Ragged
from ensue.errors import EnsueError
from ensue.metrics.labeling import LabelingScores, LabelingTally
from ensue.models.frame_features import Frames
from ensue.models.modules import device_of, evaluating
from ensue.models.tag_heads import PADDING
from ensue.models.tagger import SentencePlaces, Tagger
from ensue.models.word_features import FormTable, Words
from ensue.ranks import spread
from ensue.tasks.contract.task import WHOLE, Batch, BatchSizes, BucketedTask, Cut, on_device
from ensue.tasks.labeling.contexts import Contexts, Places
from ensue.tasks.words.encoded_texts import EncodedTexts, stacked
from ensue.tasks.words.kept_vectors import LayersOfTexts
from ensue.tasks.words.subwords import SubwordTexts
from ensue.text.labels import Labels
from ensue.types import Loss, State

READ_TOKENS, READ_ROWS = 4_096, 256
"""The most words, and the most sentences, in a batch outside of training."""


@dataclass(frozen=True)
class TaggedBatch(Batch):
    """Contexts, the places of the sentences in them (None: each context is a sentence), and the tags (S, L), `PADDING`
    for padding.
    """

    words: Words | Frames
    sentences: SentencePlaces | None
    tags: Tensor


class Labeled(Protocol):
    """Labeled data in memory."""

    @property
    def contexts(self) -> Contexts:
        """Which sentences are read together; a series of frames is a sentence and a context."""

    @property
    def labels(self) -> Sequence[Sequence[str]]:
        """The labels of their file."""

    def batch(self, contexts: NDArray[np.int64], device: torch.device, cut: Cut = WHOLE) -> Words | Frames:
        """The batch of these contexts, cut."""

    def paths(self, model: Tagger) -> list[NDArray[np.int64]]:
        """The tags (T,) of each sentence, in order."""


class LabeledTexts(NamedTuple):
    """Sentences with the labels of their file. The rows of `texts` are the contexts, as are those of `subwords` for
    layers that read these.
    """

    texts: EncodedTexts
    contexts: Contexts
    labels: list[list[str]]
    subwords: SubwordTexts | None = None

    def batch(self, contexts: NDArray[np.int64], device: torch.device, cut: Cut = WHOLE) -> Words:
        """The batch of these contexts, cut."""
        words = self.texts.batch(contexts, device, cut)
        return words if self.subwords is None else words._replace(subwords=self.subwords.batch(contexts, device, cut))

    def paths(self, model: Tagger) -> list[NDArray[np.int64]]:
        """The tags (T,) of each sentence, in order. Each word form is encoded once."""
        forms = model.features.table(self.texts.forms, device_of(model))
        return tag_texts(model, forms, self.contexts, self.texts.columns, self.texts.contextual, self.subwords)[0]


class Labeling(BucketedTask[Tagger, TaggedBatch]):
    """Labeling in batches of sentences of similar length; judged by the F1 of spans, or by accuracy
    for plain labels.
    """

    def __init__(
        self,
        train: Labeled,
        valid: Labeled | None,
        labels: Labels,
        sizes: BatchSizes,
    ) -> None:
        self.train, self.contexts, self.valid, self.labels = train, train.contexts, valid, labels
        self.judged_by = "f1" if labels.has_spans else "accuracy"
        tags = [tag for names in train.labels for tag in labels.encode(names)]
        self.tags = Ragged(np.array(tags, np.int64), train.contexts.sentences.starts)
        super().__init__(train.contexts.words.lengths, sizes)

    def count(self, rows: NDArray[np.int64]) -> int:
        return int(self.contexts.words.lengths[rows].sum())

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, cut: Cut = WHOLE) -> TaggedBatch:
        own, sentences = cut.of(rows), None
        if not self.contexts.are_sentences:
            sentences = placed(self.contexts.places(own, among=rows), device)
        numbers, among = self.contexts.numbers(own), self.contexts.numbers(rows)
        tags = on_device(self.tags.padded(numbers, fill=PADDING, among=among), device)
        return TaggedBatch(self.train.batch(rows, device, cut), sentences, tags)

    def loss(self, model: Tagger, batch: TaggedBatch, state: State) -> tuple[Loss, State]:
        return model.loss(batch.words, batch.tags, batch.sentences), None

    def validate(self, model: Tagger) -> LabelingScores | None:
        return None if self.valid is None else evaluate_tagger(model, self.valid, self.labels)


def evaluate_tagger(model: Tagger, data: Labeled, labels: Labels) -> LabelingScores:
    """The scores of a tagger on labeled sentences. Raises EnsueError if no word is labeled."""
    if not any(data.labels):
        raise EnsueError("there is nothing to score: no labeled word")
    tally = LabelingTally(spans=labels.has_spans)
    with evaluating(model):
        paths = data.paths(model)
    for gold, path in zip(data.labels, paths, strict=True):
        tally.add(gold, labels.decode(path.tolist()))
    return tally.scores(known=labels.names)


def tag_texts(
    model: Tagger,
    forms: FormTable,
    contexts: Contexts,
    columns: Sequence[Ragged] = (),
    contextual: Sequence[LayersOfTexts] = (),
    subwords: SubwordTexts | None = None,
    *,
    with_marginals: bool = False,
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.float32]]]:
    """The tags (T,) of each text in order, and if asked for the marginal probabilities of all tags (T, K).

    `forms` are the word forms that the words number; `contextual` are the contexts' words in the layers of other
    models.
    """
    device, words = device_of(model), contexts.words

    def emissions(rows: NDArray[np.int64]) -> Emissions:
        index, real = words.padded(rows), words.mask(rows)
        mask, numbers = None if real is None else on_device(real, device), on_device(index, device)
        given = on_device(stacked(list(columns), rows, index.shape), device)
        x = model.features.in_place(forms.vectors, numbers, given, [part.batch(rows, device) for part in contextual])
        read = None if subwords is None else subwords.batch(rows, device)
        return Emissions(model.emissions(x, forms.keys[numbers], mask, read), mask)

    return tag_rows(model, contexts, emissions, with_marginals=with_marginals)


class Emissions(NamedTuple):
    """The scores of tags (B, T, K), and which of them are of real words or frames."""

    scores: Tensor
    mask: Tensor | None


@torch.inference_mode()
def tag_rows(
    model: Tagger,
    contexts: Contexts,
    emissions_of: Callable[[NDArray[np.int64]], Emissions],
    *,
    with_marginals: bool = False,
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.float32]]]:
    """The tags (T,) of each sentence in order, and if asked for their marginals, from the emissions of some contexts,
    those of similar length together.
    """
    device = device_of(model)
    num_sentences, words = len(contexts.sentences), contexts.words
    paths: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * num_sentences
    none = np.zeros((0, model.head.num_tags), np.float32)
    marginals: list[NDArray[np.float32]] = [none] * num_sentences if with_marginals else []

    def tagged(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32] | None]:
        """The numbers of the sentences, their tags (S, T), and the marginal probabilities (S, T, K)."""
        emissions, mask = emissions_of(rows)
        sentences = rows
        if not contexts.are_sentences:
            places = contexts.places(rows)
            sentences, within = places.numbers, placed(places, device)
            emissions, mask = emissions.flatten(0, 1)[within.places], within.mask
        shares = model.head.marginals(emissions, mask).cpu().numpy() if with_marginals else None
        return sentences, model.head.best(emissions, mask).cpu().numpy(), shares

    batches = by_length(words.lengths, batch_size=READ_ROWS, batch_tokens=READ_TOKENS)
    for sentences, tags, shares in spread(tagged, (rows for rows in batches if words.lengths[rows].max())):
        for place, sentence in enumerate(sentences):
            length = contexts.sentences.lengths[sentence]
            paths[sentence] = tags[place, :length]
            if shares is not None:
                marginals[sentence] = shares[place, :length]
    return paths, marginals


def placed(places: Places, device: torch.device) -> SentencePlaces:
    """The places as tensors on a device."""
    return SentencePlaces(*(on_device(part, device) for part in (places.places, places.real, places.rows)))
