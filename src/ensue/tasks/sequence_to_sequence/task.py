"""Sequence to sequence: batches of pairs, their loss, and the surprisal of the validation pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.buckets import by_length
from ensue.data.compact_texts import Ragged, RaggedRows
from ensue.models.encoder_decoder import TextModel, right_shifted
from ensue.models.modules import device_of, evaluating
from ensue.ranks import spread
from ensue.tasks.contract.task import WHOLE, Batch, BatchSizes, BucketedTask, Cut, NamedScores, on_device
from ensue.tasks.sequence_to_sequence.sources import SourceRows
from ensue.tasks.sequence_to_sequence.texts import Ids
from ensue.tasks.words.kept_vectors import LayersOfTexts
from ensue.types import Loss, State

READ_TOKENS, READ_ROWS = 8_192, 256
"""The most tokens, and the most pairs, in a batch outside of training."""

USUAL = 0.999
"""The share of training pairs whose ratio of lengths bounds that of outputs."""


@dataclass(frozen=True)
class PairBatch(Batch):
    """Sources, ids (B, S) or frames (B, S, d), and targets (B, T), which end with the end symbol, padded on the right.

    A mask is None where nothing is padded.
    """

    sources: Tensor
    source_mask: Tensor | None
    targets: Tensor
    target_mask: Tensor | None
    contextual: tuple[Tensor, ...] = ()
    """The words of the sources in the layers of other models."""


class EncodedPairs(NamedTuple):
    """Pairs as rows of ids, or of frames and ids, and the sources' words in the layers of other models."""

    sources: SourceRows
    targets: Ragged
    contextual: tuple[LayersOfTexts, ...] = ()

    @classmethod
    def of(cls, pairs: Iterable[tuple[Ids, Ids]]) -> Self:
        """Pairs of rows, in little memory."""
        sources, targets = RaggedRows(), RaggedRows()
        for source, target in pairs:
            sources.append(source)
            targets.append(target)
        return cls(sources.ragged(), targets.ragged())

    @classmethod
    def of_targets(cls, sources: SourceRows, targets: Iterable[Ids]) -> Self:
        """Sources with a target each."""
        rows = RaggedRows()
        for target in targets:
            rows.append(target)
        return cls(sources, rows.ragged())

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens, or frames, of both sides of each pair."""
        found: NDArray[np.int64] = self.sources.lengths + self.targets.lengths
        return found

    def batch(self, rows: NDArray[np.int64], device: torch.device, cut: Cut = WHOLE) -> PairBatch:
        """The batch of the pairs in these rows, cut."""
        sides, own = (self.sources, self.targets), cut.of(rows)
        masks = (side.mask(own, among=rows) for side in sides)
        source_mask, target_mask = (None if mask is None else on_device(mask, device) for mask in masks)
        sources, targets = (on_device(side.padded(own, among=rows), device) for side in sides)
        layers = tuple(part.batch(rows, device, cut) for part in self.contextual)
        return PairBatch(sources, source_mask, targets, target_mask, layers)

    def __len__(self) -> int:
        return len(self.sources)


class SequenceToSequence(BucketedTask[TextModel, PairBatch]):
    """Pairs in batches of similar length, judged by nats per token of the targets.

    `sampled` shows what the model makes of a few sources.
    """

    judged_by = "nats_per_token"
    less_is_better = True

    def __init__(
        self,
        train: EncodedPairs,
        valid: EncodedPairs | None,
        *,
        begin_id: int,
        sizes: BatchSizes,
        sampled: Callable[[TextModel], str] = lambda model: "",
    ) -> None:
        self.train, self.valid, self.begin_id, self.sampled = train, valid, begin_id, sampled
        super().__init__(train.lengths, sizes, num_tokens=int(train.targets.lengths.sum()))

    def count(self, rows: NDArray[np.int64]) -> int:
        return int(self.train.targets.lengths[rows].sum())

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, cut: Cut = WHOLE) -> PairBatch:
        return self.train.batch(rows, device, cut)

    def loss(self, model: TextModel, batch: PairBatch, state: State) -> tuple[Loss, State]:
        state = model.begin(batch.sources, batch.source_mask, batch.contextual)
        inputs = right_shifted(batch.targets, self.begin_id)
        return model.loss(inputs, batch.targets, state, mask=batch.target_mask), None

    def validate(self, model: TextModel) -> NamedScores | None:
        if self.valid is None:
            return None
        valid = self.valid
        totals = spread(lambda rows: float(_nats(model, valid, rows, self.begin_id).sum()), _by_length(valid))
        return NamedScores(nats_per_token=sum(totals) / int(valid.targets.lengths.sum()))

    def sample(self, model: TextModel, seed: int) -> str:
        return self.sampled(model)


def usual_ratio(train: EncodedPairs) -> float:
    """Target tokens for one of the source, or for a frame, which hardly a training pair exceeds."""
    return float(np.quantile(train.targets.lengths / train.sources.lengths, USUAL))


def surprisals(model: TextModel, pairs: EncodedPairs, *, begin_id: int) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """The surprisal in nats of the targets' tokens (B, T), 0 at padding, with the numbers of the pairs; by length."""
    for rows in _by_length(pairs):
        yield rows, _nats(model, pairs, rows, begin_id)


def _by_length(pairs: EncodedPairs) -> Iterator[NDArray[np.int64]]:
    return by_length(pairs.lengths, batch_size=READ_ROWS, batch_tokens=READ_TOKENS)


def _nats(model: TextModel, pairs: EncodedPairs, rows: NDArray[np.int64], begin_id: int) -> Tensor:
    """The surprisal of the targets' tokens (B, T) of these pairs."""
    batch = pairs.batch(rows, device_of(model))
    with torch.inference_mode(), evaluating(model):
        begun = model.begin(batch.sources, batch.source_mask, batch.contextual)
        nats = model.nats(right_shifted(batch.targets, begin_id), batch.targets, begun)
    return nats if batch.target_mask is None else nats.masked_fill(~batch.target_mask, 0.0)
