"""Bidirectional language modeling: texts to batches for both directions, batches to a loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ensue.data.corpus.batches import Blocks, Segments, TokenBatch
from ensue.extensions.bidirectional.layers import BidirectionalLanguageModel, BidirectionalModel, Direction
from ensue.extensions.bidirectional.words import LINE_END, Ids, WordReader, WordText
from ensue.nn import WordSample
from ensue.tasks.contract.task import Batch, Scores, Task, UnreadBatch, on_device, reset
from ensue.tasks.texts.drawn_words import SampledWords
from ensue.types import Loss, State


@dataclass(frozen=True)
class TwoWayBatch(Batch):
    """The distinct words of a batch, and what each direction reads and predicts, (B, T)."""

    shared: ClassVar[frozenset[str]] = frozenset({"words", "sample"})
    rightward: Direction
    leftward: Direction
    words: Tensor
    sample: WordSample | None = None
    """The words that stand for the whole vocabulary."""
    noise: Tensor | None = None
    """(B, T, K): words of noise for each word, where negative samples train the model."""

    @property
    def count(self) -> int:
        """The number of predictions: of each word from either side, or from both sides together."""
        return self.rightward.targets.numel() * (2 if self.noise is None else 1)


class TwoWayRows:
    """From rows of a text to what both directions read."""

    def __init__(self, text: WordText, reader: WordReader) -> None:
        self.text, self.reader = text, reader

    def blocks(self, words: Ids, device: torch.device) -> TwoWayBatch:
        """Rows of words (B, T) that are read by themselves, as if a text began and ended there."""
        ends = np.full((len(words), 1), LINE_END)
        back = words[:, ::-1]
        return self._batch(
            np.hstack((ends, words[:, :-1])), words, np.hstack((ends, back[:, :-1])), back, device, first=True
        )

    def segments(self, ahead: TokenBatch, behind: TokenBatch, device: torch.device) -> TwoWayBatch:
        """A segment that goes on to the right, and one that goes on to the left."""
        rows = np.hstack((behind.inputs, behind.targets[:, -1:]))[:, ::-1]
        return self._batch(ahead.inputs, ahead.targets, rows[:, :-1], rows[:, 1:], device, first=ahead.first)

    def _batch(
        self, right: Ids, right_next: Ids, left: Ids, left_next: Ids, device: torch.device, *, first: bool
    ) -> TwoWayBatch:
        numbered, ids = self.reader.batch(self.text, right, left), self.text.ids
        return TwoWayBatch(
            Direction(on_device(numbered.rightward, device), on_device(ids[right_next], device)),
            Direction(on_device(numbered.leftward, device), on_device(ids[left_next], device)),
            on_device(numbered.words, device),
            first=first,
        )


class BidirectionalLanguageModeling(Task[BidirectionalModel, TwoWayBatch]):
    """Both directions on segments of a text with carried state, or on blocks of it; judged by nats per prediction."""

    judged_by = "nats_per_token"
    less_is_better = True

    def __init__(
        self,
        batches: Segments | Blocks,
        rows: TwoWayRows,
        *,
        sampled: SampledWords | None = None,
        reset_state: float = 0.0,
        validate: Callable[[BidirectionalModel], Scores | None],
    ) -> None:
        self.batches, self.rows, self.sampled, self.reset_state = batches, rows, sampled, reset_state
        self.steps_per_epoch = batches.steps_per_epoch
        self.tokens_per_step = batches.batch_size * batches.segment_length
        self._validate = validate

    def batch(self, step: int, device: torch.device) -> TwoWayBatch:
        batch = self.batches.batch(step)
        if isinstance(self.batches, Segments):
            # The other direction reads an epoch's segments from the last to the first.
            epoch, index = divmod(step, self.steps_per_epoch)
            mirrored = self.batches.batch(epoch * self.steps_per_epoch + self.steps_per_epoch - 1 - index)
            found = self.rows.segments(batch, mirrored, device)
        else:
            found = self.rows.blocks(batch.inputs, device)
        return replace(found, sample=None if self.sampled is None else self.sampled.draw(step, device))

    def initial_state(self, model: BidirectionalModel) -> State:
        return model.init_state(self.batches.batch_size) if isinstance(self.batches, Segments) else None

    def carried(self, model: BidirectionalModel, batch: UnreadBatch[TwoWayBatch], state: State) -> State:
        """The state for the next segment: None at the start of an epoch, and a new one in rows that are reset."""
        return None if batch.first else reset(state, self.reset_state, model.init_state)

    def loss(self, model: BidirectionalModel, batch: TwoWayBatch, state: State) -> tuple[Loss, State]:
        assert isinstance(model, BidirectionalLanguageModel)
        loss, after = model.loss(batch.words, batch.rightward, batch.leftward, state, sample=batch.sample)
        return loss, after if isinstance(self.batches, Segments) else None

    def validate(self, model: BidirectionalModel) -> Scores | None:
        return self._validate(model)
