"""Labeling: a tag for every word of a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.compact_texts import Ragged
from ensue.errors import EnsueError
from ensue.metrics.labeling import LabelingScores, LabelingTally
from ensue.models.frame_features import Frames
from ensue.models.modules import evaluating
from ensue.models.tag_heads import PADDING
from ensue.models.tagger import SentencePlaces, Tagger
from ensue.models.word_features import Words
from ensue.tasks.contract.task import WHOLE, Batch, BatchSizes, BucketedTask, Cut, on_device
from ensue.tasks.labeling.decoding import Contexts, placed
from ensue.text.labels import Labels
from ensue.types import Loss, State


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
