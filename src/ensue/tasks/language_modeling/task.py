"""Language modeling: predict every next token of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from ensue.data.corpus.batches import Blocks, Segments
from ensue.data.corpus.token_file import TokenFile
from ensue.decode.generation import generate_ids
from ensue.decode.sampling import Sampling
from ensue.metrics.language import LanguageScores
from ensue.models.language_model import LanguageModel
from ensue.nn import WordSample
from ensue.tasks.contract.task import Batch, Cut, Task, UnreadBatch, on_device, reset
from ensue.tasks.texts.drawn_words import SampledWords
from ensue.tasks.texts.scoring import read
from ensue.text.tokenizers import Tokenizer
from ensue.types import Loss, State


@dataclass(frozen=True)
class LanguageBatch(Batch):
    """`inputs` and `targets` (B, T): each target is the id after its input. `sample`: what stands for all words."""

    shared: ClassVar[frozenset[str]] = frozenset({"sample"})
    inputs: torch.Tensor
    targets: torch.Tensor
    sample: WordSample | None = None

    @property
    def count(self) -> int:
        """The number of tokens, each of which is one prediction."""
        return self.targets.numel()


class LanguageModeling(Task[LanguageModel, LanguageBatch]):
    """Language modeling on segments of a stream, with carried state, or on shuffled blocks; judged
    by nats per token.
    """

    judged_by = "nats_per_token"
    less_is_better = True

    def __init__(
        self,
        batches: Segments | Blocks,
        *,
        tokenizer: Tokenizer,
        valid: TokenFile | None,
        segment_length: int,
        sample_tokens: int = 0,
        reset_state: float = 0.0,
        sampled: SampledWords | None = None,
    ) -> None:
        self.sampled = sampled
        self.batches, self.tokenizer, self.valid, self.sample_tokens = batches, tokenizer, valid, sample_tokens
        self.reset_state = reset_state
        self.carries_state = isinstance(batches, Segments)
        self.steps_per_epoch = batches.steps_per_epoch
        self.tokens_per_step = batches.batch_size * segment_length

    def batch(self, step: int, device: torch.device) -> LanguageBatch:
        return self.unread(step, device).whole

    def unread(self, step: int, device: torch.device) -> UnreadBatch[LanguageBatch]:
        rows, first = np.arange(self.batches.batch_size), self.batches.is_first(step)
        sample = None if self.sampled is None else self.sampled.draw(step, device)

        def read(cut: Cut) -> LanguageBatch:
            batch = self.batches.batch(step, cut.of(rows))
            inputs, targets = on_device(batch.inputs, device), on_device(batch.targets, device)
            return LanguageBatch(inputs, targets, sample, first=first)

        return UnreadBatch(len(rows), len(rows) * self.batches.segment_length, read, first=first)

    def initial_state(self, model: LanguageModel) -> State:
        return model.init_state(self.batches.batch_size)

    def carried(self, model: LanguageModel, batch: UnreadBatch[LanguageBatch], state: State) -> State:
        """The state for the next segment: None at the start of a stream, and a new one in rows that are reset at
        random.
        """
        return None if batch.first else reset(state, self.reset_state, model.init_state)

    def loss(self, model: LanguageModel, batch: LanguageBatch, state: State) -> tuple[Loss, State]:
        loss, after = model.loss(batch.inputs, batch.targets, state, sample=batch.sample)
        return loss, after if self.carries_state else None

    def validate(self, model: LanguageModel) -> LanguageScores | None:
        return None if self.valid is None else read(model, self.valid, start_id=self.tokenizer.start_id)

    def sample(self, model: LanguageModel, seed: int) -> str:
        ids: Sequence[torch.Tensor] = list(
            generate_ids(
                model,
                [np.zeros(0, dtype=np.int64)],
                max_tokens=self.sample_tokens,
                sampling=Sampling(),
                seed=seed,
                start_id=self.tokenizer.start_id,
            )
        )
        return self.tokenizer.decode([int(row[0]) for row in ids])
