"""Labeling: a tag for every word of a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.buckets import Buckets, by_length
from ensue.data.words import Ragged
from ensue.errors import EnsueError
from ensue.metrics.labeling import LabelingScores, LabelingTally
from ensue.models.modules import device_of, evaluating
from ensue.models.tag_heads import PADDING
from ensue.models.tagger import Tagger
from ensue.models.word_features import Words
from ensue.tasks.task import Task, on_device
from ensue.tasks.words.encoded_texts import EncodedTexts, stacked
from ensue.text.labels import Labels
from ensue.types import Loss, State

READ_TOKENS, READ_ROWS = 4_096, 256
"""Words and sentences that are read side by side where nothing is learned."""


class TaggedBatch(NamedTuple):
    """Sentences and their tags (B, T), `PADDING` where there is no word."""

    words: Words
    tags: Tensor
    count: int  # type: ignore[assignment]  # it hides tuple.count, which a batch has no use for
    first: bool = True

    @property
    def rows(self) -> int:
        return len(self.tags)

    def part(self, rows: slice) -> Self:
        return self._replace(words=self.words.part(rows), tags=self.tags[rows])


class LabeledTexts(NamedTuple):
    """Sentences with the labels that their file gives them."""

    texts: EncodedTexts
    labels: list[list[str]]


class Labeling(Task[Tagger, TaggedBatch]):
    """Batches of sentences of similar length in, summed nats out; judged by span F1, or accuracy for plain labels."""

    def __init__(
        self,
        train: LabeledTexts,
        valid: LabeledTexts | None,
        labels: Labels,
        *,
        batch_size: int,
        batch_tokens: int,
        seed: int,
    ) -> None:
        self.texts, self.valid, self.labels = train.texts, valid, labels
        self.judged_by = "f1" if labels.has_spans else "accuracy"
        tags = [tag for names in train.labels for tag in labels.encode(names)]
        self.tags = Ragged(np.array(tags, np.int64), train.texts.words.starts)
        self.buckets = Buckets(self.tags.lengths, batch_size=batch_size, batch_tokens=batch_tokens, seed=seed)
        self.steps_per_epoch = self.buckets.steps_per_epoch
        self.tokens_per_step = len(tags) / self.steps_per_epoch

    def batch(self, step: int, device: torch.device) -> TaggedBatch:
        rows = self.buckets.rows(step)
        tags = self.tags.padded(rows, fill=PADDING)
        return TaggedBatch(self.texts.batch(rows, device), on_device(tags, device), int(self.tags.lengths[rows].sum()))

    def loss(self, model: Tagger, batch: TaggedBatch, state: State) -> tuple[Loss, State]:
        return model.loss(batch.words, batch.tags), None

    def validate(self, model: Tagger) -> LabelingScores | None:
        return None if self.valid is None else evaluate_tagger(model, self.valid, self.labels)


def evaluate_tagger(model: Tagger, data: LabeledTexts, labels: Labels) -> LabelingScores:
    """The scores of a tagger on labeled sentences; EnsueError where no word is labeled."""
    if not any(data.labels):
        raise EnsueError("there is nothing to score: no labeled word")
    tally = LabelingTally(spans=labels.has_spans)
    with evaluating(model):
        vectors = model.features.table(data.texts.forms, device_of(model)).vectors
        paths, _ = tag_texts(model, vectors, data.texts.words, data.texts.columns)
    for gold, path in zip(data.labels, paths, strict=True):
        tally.add(gold, labels.decode(path.tolist()))
    return tally.scores(known=labels.names)


@torch.inference_mode()
def tag_texts(
    model: Tagger, vectors: Tensor, words: Ragged, columns: Sequence[Ragged] = (), *, with_marginals: bool = False
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.float32]]]:
    """The tags (T,) of each text in order, and if asked for the marginal probabilities of all tags (T, K).

    `vectors` are those of the word forms that `words` number.
    """
    device = device_of(model)
    paths: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * len(words)
    none = np.zeros((0, model.head.num_tags), np.float32)
    marginals: list[NDArray[np.float32]] = [none] * len(words) if with_marginals else []
    for rows in by_length(words.lengths, batch_size=READ_ROWS, batch_tokens=READ_TOKENS):
        lengths = words.lengths[rows]
        if not lengths.max():
            continue
        index, real = words.padded(rows), words.mask(rows)
        mask = None if real is None else on_device(real, device)
        given = on_device(stacked(list(columns), rows, index.shape), device)
        emissions = model.emissions(model.features.in_place(vectors, on_device(index, device), given), mask)
        for row, length, path in zip(rows, lengths, model.head.best(emissions, mask).cpu().numpy(), strict=True):
            paths[row] = path[:length]
        if with_marginals:
            for row, length, shares in zip(
                rows, lengths, model.head.marginals(emissions, mask).cpu().numpy(), strict=True
            ):
                marginals[row] = shares[:length]
    return paths, marginals
