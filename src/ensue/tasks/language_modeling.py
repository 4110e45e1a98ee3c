"""Language modeling: predict every next token of a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ensue.data.batches import Blocks, Segments
from ensue.data.token_file import TokenFile
from ensue.decode.generation import generate_ids
from ensue.decode.sampling import Sampling
from ensue.metrics.language import LanguageScores
from ensue.models.language_model import LanguageModel
from ensue.tasks.reading import read
from ensue.tasks.task import Scores, Task, TrainingBatch
from ensue.text.tokenizers import Tokenizer
from ensue.types import Loss, State


class LanguageModeling(Task[LanguageModel]):
    """Segments of a stream (state carried) or shuffled blocks in, summed nats out; judged by nats per token."""

    def __init__(
        self,
        batches: Segments | Blocks,
        *,
        tokenizer: Tokenizer,
        valid: TokenFile | None,
        segment_length: int,
        sample_tokens: int = 0,
    ) -> None:
        self.batches, self.tokenizer, self.valid, self.sample_tokens = batches, tokenizer, valid, sample_tokens
        self.carries_state = isinstance(batches, Segments)
        self.steps_per_epoch = batches.steps_per_epoch
        self.tokens_per_step = batches.batch_size * segment_length

    def batch(self, step: int, device: torch.device) -> TrainingBatch:
        batch = self.batches.batch(step)
        return TrainingBatch(_on(device, batch.inputs), _on(device, batch.targets), batch.first)

    def loss(self, model: LanguageModel, batch: TrainingBatch, state: State) -> tuple[Loss, State]:
        loss, after = model.loss(batch.inputs, batch.targets, state)
        return loss, after if self.carries_state else None

    def validate(self, model: LanguageModel) -> LanguageScores | None:
        return None if self.valid is None else read(model, self.valid, start_id=self.tokenizer.start_id)

    def selection(self, scores: Scores) -> float:
        assert isinstance(scores, LanguageScores)
        return scores.nats_per_token

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


def _on(device: torch.device, ids: np.ndarray) -> torch.Tensor:
    tensor = torch.from_numpy(ids)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
