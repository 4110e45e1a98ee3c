"""The base of the jobs that hold their examples in memory, and keep a part of them for validation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sized
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ensue.recipe.tables import DataRecipe
from ensue.tasks.job import Job


class Selectable(Sized, Protocol):
    """Examples of which any rows can be taken."""

    def select(self, rows: NDArray[np.int64]) -> Self:
        """Those in these rows."""


ModelT = TypeVar("ModelT", bound=nn.Module)
DataT = TypeVar("DataT", bound=Sized)
SelectableT = TypeVar("SelectableT", bound=Selectable)


def drawn(whole: SelectableT, size: int, data: DataRecipe) -> tuple[SelectableT, SelectableT, str]:
    """Two parts, the first of this size, drawn at random, since data are often sorted by label. They are the same for
    every seed.
    """
    order = np.random.default_rng(0).permutation(len(whole))
    chosen = f"{data.valid_fraction:.0%} of {data.train}, drawn at random"
    return whole.select(np.sort(order[:size])), whole.select(np.sort(order[size:])), chosen


class SplitJob(Job[ModelT], Generic[ModelT, DataT]):
    """Trains a model on examples that are held in memory."""

    recipe: Any
    train: DataT
    valid: DataT | None
    test_data: DataT | None

    @abstractmethod
    def read(self, location: str) -> DataT:
        """Validation or test data, in the format of the training data."""

    @abstractmethod
    def parted(self, whole: DataT, size: int) -> tuple[DataT, DataT, str]:
        """The training data in two parts: `size` of them, and the others for validation; and how they were chosen."""

    def split(self, whole: DataT) -> tuple[DataT, DataT | None, str]:
        """The training and the validation data, and where the latter come from, for people."""
        data = self.recipe.data
        if data.valid:
            return whole, self.read(data.valid), data.valid
        size = max(1, round(len(whole) * (1 - data.valid_fraction)))
        return self.parted(whole, size) if size < len(whole) else (whole, None, "none")

    def notes_on_validation(self) -> list[str]:
        """A remark on a validation that is missing."""
        missing = "no validation data: the last weights are kept, and no score is measured"
        return [missing] if self.valid is None else []
