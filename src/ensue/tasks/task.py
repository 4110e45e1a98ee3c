"""The interface between the training loop and a task: batches, a loss, and a score that chooses the best weights."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import nn

from ensue.nn.draws import uniform
from ensue.types import Loss, State, hold, leaves

ModelT = TypeVar("ModelT", bound=nn.Module)
BatchT = TypeVar("BatchT", bound="Batch")


class Scores(Protocol):
    """The scores of a validation."""

    def as_json(self) -> dict[str, Any]:
        """The scores as JSON values by name."""

    def summary(self) -> str:
        """The scores in one line, for people."""


class NamedScores(dict[str, float]):
    """Scores by their names, for a task whose scores are numbers."""

    def as_json(self) -> dict[str, Any]:
        """The scores by name."""
        return dict(self)

    def summary(self) -> str:
        """The scores in one line, for people."""
        return ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in self.items())


class Batch(Protocol):
    """The input of a step, on the model's device."""

    @property
    def rows(self) -> int:
        """The number of rows."""

    @property
    def count(self) -> int:
        """The number of predictions in the batch."""

    @property
    def first(self) -> bool:
        """Whether the state begins anew with this batch."""

    def part(self, rows: slice) -> Self:
        """The batch of some of its rows."""


class TensorBatch(NamedTuple):
    """A batch of tensors with the rows on dim 0, such as inputs and targets, with one prediction for each row."""

    tensors: tuple[torch.Tensor, ...]
    first: bool = True

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.tensors[0])

    @property
    def count(self) -> int:  # type: ignore[override]  # it hides tuple.count, which a batch has no use for
        """The number of rows, each of which is one prediction."""
        return self.rows

    def part(self, rows: slice) -> Self:
        """The batch of some of its rows."""
        return self._replace(tensors=tuple(tensor[rows] for tensor in self.tensors))


class Task(ABC, Generic[ModelT, BatchT]):
    """The training data as a function of the step, with the loss and the validation."""

    steps_per_epoch: int
    tokens_per_step: float
    judged_by: str
    """The score that chooses the best weights, by its name in `Scores.as_json`."""
    less_is_better = False

    @abstractmethod
    def batch(self, step: int, device: torch.device) -> BatchT:
        """The batch of a step; the same at each call."""

    @abstractmethod
    def loss(self, model: ModelT, batch: BatchT, state: State) -> tuple[Loss, State]:
        """The summed loss of a batch, or of some of its rows, and the state for the next batch."""

    def update(self, model: ModelT, batch: BatchT, state: State, learning_rate: float) -> tuple[Loss, State] | None:
        """A step of a task that changes the weights by itself: the loss before it, and the state for the next step.
        None, as here, for a task whose weights follow the gradient of `loss`.
        """
        return None

    def initial_state(self, model: ModelT) -> State:
        """A state with the form of the carried one; None if no state is carried."""
        return None

    def carried(self, model: ModelT, batch: BatchT, state: State) -> State:
        """The state that enters a step, from the state after the step before."""
        return None if batch.first else state

    @abstractmethod
    def validate(self, model: ModelT) -> Scores | None:
        """The scores on the validation data; None if there are none."""

    def selection(self, scores: Scores) -> float:
        """The number that chooses the best weights: the lowest one is the best. NaN for a score that JSON does not
        have.
        """
        value: float | None = scores.as_json()[self.judged_by]
        return math.nan if value is None else value if self.less_is_better else -value

    def sample(self, model: ModelT, seed: int) -> str:
        """A sample that shows what the model does now; "" if there is none."""
        return ""


def reset(state: State, share: float, init_state: Callable[[int], State]) -> State:
    """The state, with this share of its rows, at random, as `init_state` makes so many."""
    if state is None or not share:
        return state
    first = next(leaves(state))
    kept = uniform((len(first),), device=first.device) >= share
    return hold(kept, state, init_state(len(first)))


def on_device(array: Any, device: torch.device) -> torch.Tensor:
    """A numpy array as a tensor on the device; for a GPU through pinned memory, without waiting."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
