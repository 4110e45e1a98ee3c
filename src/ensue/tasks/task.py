"""What the training loop knows of a task: batches in, a loss out, and a score to choose the best weights by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import nn

from ensue.types import Loss, State

ModelT = TypeVar("ModelT", bound=nn.Module)


class Scores(Protocol):
    """What a validation gives."""

    def as_json(self) -> dict[str, Any]: ...


class TrainingBatch(NamedTuple):
    """One step's input on the model's device; `first` says that no state is carried into it."""

    inputs: torch.Tensor
    targets: torch.Tensor
    first: bool


class Task(ABC, Generic[ModelT]):
    """Training data as a pure function of the step, and what is done with it."""

    steps_per_epoch: int
    tokens_per_step: int

    @abstractmethod
    def batch(self, step: int, device: torch.device) -> TrainingBatch:
        """The batch of that step, the same whenever it is asked for."""

    @abstractmethod
    def loss(self, model: ModelT, batch: TrainingBatch, state: State) -> tuple[Loss, State]:
        """The summed loss of a batch (or of some of its rows) and the state to carry on."""

    @abstractmethod
    def validate(self, model: ModelT) -> Scores | None:
        """Scores on the validation data; None where there is none."""

    @abstractmethod
    def selection(self, scores: Scores) -> float:
        """The number by which the best weights are chosen; less is better."""

    def sample(self, model: ModelT, seed: int) -> str:
        """Something that shows a person what the model does by now."""
        return ""
