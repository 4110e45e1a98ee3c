"""The interface between the training loop and a task: batches, a loss, and a score that chooses the best weights."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ensue.data.buckets import Buckets
from ensue.inspection.notebook import ShownScores
from ensue.nn.draws import ALL_ROWS, RowSlice, uniform
from ensue.types import Loss, State, hold, leaves

ModelT = TypeVar("ModelT", bound=nn.Module)
BatchT = TypeVar("BatchT", bound="Batch")


class Scores(Protocol):
    """The scores of a validation."""

    def as_json(self) -> dict[str, Any]:
        """The scores as JSON values by name."""

    def summary(self) -> str:
        """The scores in one line, for people."""


class NamedScores(ShownScores, dict[str, float]):
    """Scores by their names, for a task whose scores are numbers."""

    def as_json(self) -> dict[str, Any]:
        """The scores by name."""
        return dict(self)

    def summary(self) -> str:
        """The scores in one line, for people."""
        return ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in self.items())


@dataclass(frozen=True)
class Batch:
    """The input of a step, on the model's device. The first field of a task's batch has an entry for each row."""

    shared: ClassVar[frozenset[str]] = frozenset()
    """The fields that do not have an entry for each row."""
    first: bool = field(default=True, kw_only=True)
    """Whether the state begins anew with this batch."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return _num_rows(getattr(self, fields(self)[1].name))

    @property
    def count(self) -> int:
        """The number of predictions in a batch that is read as a whole; by default that of its rows."""
        return self.rows

    def part(self, rows: slice) -> Self:
        """The batch of some of its rows."""
        names = {own.name for own in fields(self)} - self.shared
        return replace(self, **{name: _some(getattr(self, name), rows) for name in names})


def _num_rows(value: Any) -> int:
    if isinstance(value, tuple) and not hasattr(value, "part"):
        return _num_rows(value[0])
    return int(value.shape[0]) if hasattr(value, "shape") else len(value)


def _some(value: Any, rows: slice) -> Any:
    """Some rows of a field: of an array, of what has parts itself, or of each entry of a tuple; else the same value."""
    if value is None or isinstance(value, int | float):
        return value
    if hasattr(value, "part"):
        return value.part(rows)
    if isinstance(value, tuple):
        parts = [_some(part, rows) for part in value]
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    return value[rows]


@dataclass(frozen=True)
class TensorBatch(Batch):
    """A batch of tensors with the rows on dim 0, such as inputs and targets, with one prediction for each row."""

    tensors: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class UnreadBatch(Generic[BatchT]):
    """A batch of `rows` with `count` predictions, of which `read` reads some rows, as they are in the whole batch."""

    rows: int
    count: int
    read: Callable[[RowSlice], BatchT]
    first: bool = True

    @property
    def whole(self) -> BatchT:
        """All rows."""
        return self.read(ALL_ROWS)

    @classmethod
    def of(cls, batch: BatchT) -> UnreadBatch[BatchT]:
        """A batch that is read already."""
        return cls(batch.rows, batch.count, lambda row_slice: row_slice.of_batch(batch), batch.first)


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

    def unread(self, step: int, device: torch.device) -> UnreadBatch[BatchT]:
        """The batch of a step, whose rows are read when they are asked for; here all are read at once."""
        return UnreadBatch.of(self.batch(step, device))

    @abstractmethod
    def loss(self, model: ModelT, batch: BatchT, state: State) -> tuple[Loss, State]:
        """The summed loss of a batch, or of some of its rows, and the state for the next batch."""

    def update(
        self, model: ModelT, batch: UnreadBatch[BatchT], state: State, learning_rate: float
    ) -> tuple[Loss, State] | None:
        """A step of a task that changes the weights by itself: the loss before it, and the state for the next step.
        None, as here, for a task whose weights follow the gradient of `loss`.
        """
        return None

    def initial_state(self, model: ModelT) -> State:
        """A state with the form of the carried one; None if no state is carried."""
        return None

    def carried(self, model: ModelT, batch: UnreadBatch[BatchT], state: State) -> State:
        """The state that enters a step, from the state after the step before."""
        return None if batch.first else state

    @abstractmethod
    def validate(self, model: ModelT) -> Scores | None:
        """The scores on the validation data; None if there are none."""

    def selection(self, scores: Scores) -> float:
        """The number that chooses the best weights: the lowest is best. NaN for a score that JSON lacks."""
        value: float | None = scores.as_json()[self.judged_by]
        return math.nan if value is None else value if self.less_is_better else -value

    def sample(self, model: ModelT, seed: int) -> str:
        """A sample that shows what the model does now; "" if there is none."""
        return ""


class BatchSizes(Protocol):
    """The keys of a table `[train]` that bound batches of similar length."""

    @property
    def batch_size(self) -> int:
        """The most rows."""

    @property
    def batch_tokens(self) -> int:
        """The most positions, such as words, unless one row alone is longer."""

    @property
    def seed(self) -> int:
        """The seed of their order."""


class BucketedTask(Task[ModelT, BatchT]):
    """A task on examples of these `lengths`, with `num_tokens` predictions an epoch (default: one a place)."""

    def __init__(self, lengths: NDArray[np.integer], sizes: BatchSizes, *, num_tokens: int | None = None) -> None:
        self.buckets = Buckets(lengths, batch_size=sizes.batch_size, batch_tokens=sizes.batch_tokens, seed=sizes.seed)
        self.steps_per_epoch = self.buckets.steps_per_epoch
        self.tokens_per_step = float(lengths.sum() if num_tokens is None else num_tokens) / self.steps_per_epoch

    def batch(self, step: int, device: torch.device) -> BatchT:
        return self.unread(step, device).whole

    def unread(self, step: int, device: torch.device) -> UnreadBatch[BatchT]:
        rows = self.buckets.rows(step)
        return UnreadBatch(len(rows), self.count(rows), lambda row_slice: self.batch_of(rows, device, row_slice))

    def count(self, rows: NDArray[np.int64]) -> int:
        """The number of predictions in the batch of these examples; by default one for each."""
        return len(rows)

    @abstractmethod
    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> BatchT:
        """The batch of these examples, of which some rows are read."""


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
