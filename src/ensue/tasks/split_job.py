"""The base of the jobs that hold their examples in memory, and keep a part of them for validation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence, Sized
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ensue.data.division import Division, divided
from ensue.tasks.contract.job import Job


class Examples(Sized, Protocol):
    """Examples in memory."""

    @property
    def sources(self) -> Sequence[Hashable]:
        """For each example what it is of, and what may not be in both parts: its group, or what is read."""

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The examples in these rows."""


ModelT = TypeVar("ModelT", bound=nn.Module)
DataT = TypeVar("DataT", bound=Examples)


class SplitJob(Job[ModelT], Generic[ModelT, DataT]):
    """Trains a model on examples that are held in memory. `examples` is what they are called."""

    examples: ClassVar[str]
    drawn: ClassVar[bool] = True
    """Whether validation data are drawn at random, since data are often sorted by label; else they are the end."""
    recipe: Any
    train: DataT
    valid: DataT | None
    test_data: DataT | None
    division: Division | None = None
    """How the training data were divided."""

    @abstractmethod
    def read(self, location: str) -> DataT:
        """Validation or test data, in the format of the training data."""

    def split(self, whole: DataT) -> tuple[DataT, DataT | None, str]:
        """The training and the validation data, and where the latter come from, for people."""
        data = self.recipe.data
        if data.valid:
            return whole, self.read(data.valid), data.valid
        kept = max(1, round(len(whole) * (1 - data.valid_fraction)))
        if kept >= len(whole):
            return whole, None, "none"
        sources = whole.sources if data.division == "sources" else range(len(whole))
        self.division = division = divided(sources, kept, drawn=self.drawn)
        if not len(division.valid):
            return whole, None, "none"
        share = f"{data.valid_fraction:.0%} of {data.train}"
        chosen = f"{share}, drawn at random" if self.drawn else f"the last {share}"
        if division.has_repeats:
            chosen += f' by "{data.group}"' if data.group else " by source"
        return whole.select(division.train), whole.select(division.valid), chosen

    def notes_on_validation(self) -> list[str]:
        """Remarks on a validation that is missing, and on sources with several examples."""
        notes, division = [], self.division
        if division is not None and division.has_repeats:
            rows = f"{len(division.train) + len(division.valid):,} {self.examples}"
            of = f'groups ("{self.recipe.data.group}")' if self.recipe.data.group else "sources"
            held = f"{division.num_held_out:,} with {len(division.valid):,} {self.examples} are for validation"
            held = f"{held}, none is in both parts" if len(division.valid) else "nothing can be kept for validation"
            notes.append(f"{rows} are of {division.num_sources:,} {of}: {held}")
        if self.valid is None:
            notes.append("no validation data: the last weights are kept, and no score is measured")
        return notes
