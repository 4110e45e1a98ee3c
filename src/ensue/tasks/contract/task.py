"""The interface between the training loop and a task: batches, a loss, and a metric that selects a checkpoint."""

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


class TaskScores(Protocol):
    """The scores of a validation."""

    def as_json(self) -> dict[str, Any]:
        """Return the scores as JSON values by name."""

    def summary(self) -> str:
        """Return the scores in one line, for people."""


class NamedScores(ShownScores, dict[str, float]):
    """Numbers by the names of scores."""

    def as_json(self) -> dict[str, Any]:
        """Return the scores by name."""
        return dict(self)

    def summary(self) -> str:
        """Return the scores in one line, for people."""
        return ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in self.items())


@dataclass(frozen=True)
class Batch:
    """The input of a step, on the model's device. The first field of a derived class has an entry for each row."""

    shared: ClassVar[frozenset[str]] = frozenset()
    """The names of fields that do not have an entry for each row."""
    first: bool = field(default=True, kw_only=True)
    """Whether the state before this batch is the initial state."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return _count_rows(getattr(self, fields(self)[1].name))

    @property
    def count(self) -> int:
        """The number of predictions in the batch; by default the number of rows."""
        return self.rows

    def slice_rows(self, rows: slice) -> Self:
        """Return the batch with a slice of the rows."""
        names = {field.name for field in fields(self)} - self.shared
        return replace(self, **{name: _slice_rows(getattr(self, name), rows) for name in names})


def _count_rows(value: Any) -> int:
    if isinstance(value, tuple) and not hasattr(value, "slice_rows"):
        return _count_rows(value[0])
    return int(value.shape[0]) if hasattr(value, "shape") else len(value)


def _slice_rows(value: Any, rows: slice) -> Any:
    """Return a slice of the rows of a tensor, a batch, or a tuple of tensors and batches; other values as they are."""
    if value is None or isinstance(value, int | float):
        return value
    if hasattr(value, "slice_rows"):
        return value.slice_rows(rows)
    if isinstance(value, tuple):
        items = [_slice_rows(item, rows) for item in value]
        return value._make(items) if hasattr(value, "_make") else tuple(items)
    return value[rows]


@dataclass(frozen=True)
class TensorBatch(Batch):
    """A batch of tensors with the rows on dimension 0, such as inputs and targets, and one prediction for each row."""

    tensors: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class LazyBatch(Generic[BatchT]):
    """A batch that is read on demand. The fields `rows`, `count` and `first` are as in `Batch`."""

    rows: int
    count: int
    read: Callable[[RowSlice], BatchT]
    """Reads a slice of the rows."""
    first: bool = True

    @property
    def all_rows(self) -> BatchT:
        """The batch with all rows, which are read immediately."""
        return self.read(ALL_ROWS)

    @classmethod
    def of(cls, batch: BatchT) -> "LazyBatch[BatchT]":
        """Return a batch that is already in memory."""
        return cls(batch.rows, batch.count, lambda row_slice: row_slice.select_from(batch), batch.first)


class Task(ABC, Generic[ModelT, BatchT]):
    """The training batches, the loss and the validation of a model."""

    steps_per_epoch: int
    tokens_per_step: float
    """The mean number of predictions of a step."""
    judged_by: str
    """The metric for selecting the best checkpoint, a key of `TaskScores.as_json`."""
    less_is_better = False
    valid: Any = None
    """The validation data, as `Job.encode` returns them; None without such data."""
    report: Callable[[str, float], None] = staticmethod(lambda name, share: None)
    """Receives the name and the completed share of a long computation in `update`, as `Reporter.working`."""

    @abstractmethod
    def batch(self, step: int, device: torch.device) -> BatchT:
        """Return the batch of a step, which depends on the step and the seed alone."""

    def lazy_batch(self, step: int, device: torch.device) -> LazyBatch[BatchT]:
        """Return the batch of a step, whose rows are read on demand. By default, all rows are read immediately."""
        return LazyBatch.of(self.batch(step, device))

    @abstractmethod
    def loss(self, model: ModelT, batch: BatchT, state: State) -> tuple[Loss, State]:
        """Return the summed loss of a batch, or of a slice of its rows, and the state for the next batch."""

    def update(
        self, model: ModelT, batch: LazyBatch[BatchT], state: State, learning_rate: float
    ) -> tuple[Loss, State] | None:
        """Update the weights in closed form and return the loss and the state; None for a task with gradients."""
        return None

    def initial_state(self, model: ModelT) -> State:
        """Return an initial state, with the structure of the state between steps; None for a task without a state."""
        return None

    def carry_state(self, model: ModelT, batch: LazyBatch[BatchT], state: State) -> State:
        """Return the state before a step, from the state after the previous step."""
        return None if batch.first else state

    def score(self, model: ModelT, data: Any) -> TaskScores:
        """Return the scores on held-out data. By default, `data` is a function from a model to its scores."""
        return data(model)

    def validate(self, model: ModelT) -> TaskScores | None:
        """Return the scores on the validation data; None without validation data."""
        return None if self.valid is None else self.score(model, self.valid)

    def selection(self, scores: TaskScores) -> float:
        """Return the metric `judged_by`, negated if higher is better, so that lower is better; NaN if it is missing."""
        value: float | None = scores.as_json()[self.judged_by]
        return math.nan if value is None else value if self.less_is_better else -value

    def sample(self, model: ModelT, seed: int) -> str:
        """Return a text that the model generates, for the log of the run; "" for a task without such texts."""
        return ""


class BatchSizes(Protocol):
    """The keys of a table `[train]` that bound batches of similar length."""

    batch_size: int
    """The maximum number of rows."""
    batch_tokens: int
    """The maximum number of positions, such as words, unless one row alone is longer."""
    seed: int
    """The seed of the order of batches."""


class BucketedTask(Task[ModelT, BatchT]):
    """A task whose batches have examples of similar length, from the `lengths` of all examples. `num_tokens` is the
    number of predictions in an epoch; by default the sum of the lengths.
    """

    def __init__(self, lengths: NDArray[np.integer], sizes: BatchSizes, *, num_tokens: int | None = None) -> None:
        self.buckets = Buckets(lengths, batch_size=sizes.batch_size, batch_tokens=sizes.batch_tokens, seed=sizes.seed)
        self.steps_per_epoch = self.buckets.steps_per_epoch
        self.tokens_per_step = float(lengths.sum() if num_tokens is None else num_tokens) / self.steps_per_epoch

    def batch(self, step: int, device: torch.device) -> BatchT:
        return self.lazy_batch(step, device).all_rows

    def lazy_batch(self, step: int, device: torch.device) -> LazyBatch[BatchT]:
        rows = self.buckets.rows(step)
        return LazyBatch(len(rows), self.count(rows), lambda row_slice: self.batch_of(rows, device, row_slice))

    def count(self, rows: NDArray[np.int64]) -> int:
        """Return the number of predictions in the batch of the examples `rows`; by default the number of examples."""
        return len(rows)

    @abstractmethod
    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> BatchT:
        """Return the slice `row_slice` of the batch of the examples `rows` (B,)."""


def reset(state: State, probability: float, init_state: Callable[[int], State]) -> State:
    """Replace each row of a state, with the given probability, by a row of an initial state."""
    if state is None or not probability:
        return state
    leaf = next(leaves(state))
    return hold(uniform((len(leaf),), device=leaf.device) >= probability, state, init_state(len(leaf)))


def on_device(array: Any, device: torch.device) -> torch.Tensor:
    """Return a numpy array as a tensor on the device. The copy to a GPU is asynchronous, from pinned memory."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
