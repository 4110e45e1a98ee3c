"""What the training loop knows of a task: batches in, a loss out, and a score to choose the best weights by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import nn

from ensue.types import Loss, State

ModelT = TypeVar("ModelT", bound=nn.Module)
BatchT = TypeVar("BatchT", bound="Batch")


class Scores(Protocol):
    """What a validation gives."""

    def as_json(self) -> dict[str, Any]: ...

    def summary(self) -> str:
        """The scores in one line, for people."""


class NamedScores(dict[str, float]):
    """Scores by their names, for a task whose scores are numbers."""

    def as_json(self) -> dict[str, Any]:
        return dict(self)

    def summary(self) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in self.items())


class Batch(Protocol):
    """One step's input on the model's device."""

    @property
    def rows(self) -> int: ...

    @property
    def count(self) -> int:
        """How many predictions the loss of the whole batch is a mean of."""

    @property
    def first(self) -> bool:
        """Whether no state is carried into it."""

    def part(self, rows: slice) -> Self:
        """Some of its rows."""


class TensorBatch(NamedTuple):
    """A batch that is some tensors with the rows on dim 0, such as inputs and targets; one prediction a row."""

    tensors: tuple[torch.Tensor, ...]
    first: bool = True

    @property
    def rows(self) -> int:
        return len(self.tensors[0])

    @property
    def count(self) -> int:  # type: ignore[override]  # it hides tuple.count, which a batch has no use for
        return self.rows

    def part(self, rows: slice) -> Self:
        return self._replace(tensors=tuple(tensor[rows] for tensor in self.tensors))


class Task(ABC, Generic[ModelT, BatchT]):
    """Training data as a pure function of the step, and what is done with it."""

    steps_per_epoch: int
    tokens_per_step: float
    judged_by: str
    """The score that chooses the best weights, by its name in `Scores.as_json`."""
    less_is_better = False

    @abstractmethod
    def batch(self, step: int, device: torch.device) -> BatchT:
        """The batch of that step, the same whenever it is asked for."""

    @abstractmethod
    def loss(self, model: ModelT, batch: BatchT, state: State) -> tuple[Loss, State]:
        """The summed loss of a batch (or of some of its rows) and the state to carry on."""

    def initial_state(self, model: ModelT) -> State:
        """A state of the shape that is carried from step to step; None where none is."""
        return None

    def carried(self, model: ModelT, batch: BatchT, state: State) -> State:
        """What enters a step of the state that the step before has left."""
        return None if batch.first else state

    @abstractmethod
    def validate(self, model: ModelT) -> Scores | None:
        """Scores on the validation data; None where there is none."""

    def selection(self, scores: Scores) -> float:
        """The number by which the best weights are chosen; less is better."""
        value: float = scores.as_json()[self.judged_by]
        return value if self.less_is_better else -value

    def sample(self, model: ModelT, seed: int) -> str:
        """Something that shows a person what the model does by now."""
        return ""


def on_device(array: Any, device: torch.device) -> torch.Tensor:
    """A numpy array as a tensor there; to a GPU through pinned memory, without waiting."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
