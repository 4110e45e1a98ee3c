"""The base of the jobs that train on labels: what they say of data, labels and scores."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ensue.recipe.tables import DataRecipe
from ensue.tasks.job import Job
from ensue.tasks.label_table import label_table

ModelT = TypeVar("ModelT", bound=nn.Module)
MOST_NAMES = 20
"""The most labels that the card names."""


class LabeledData(Protocol):
    """Labeled texts, sentences or series in memory."""

    @property
    def label_counts(self) -> Counter[str]:
        """How often each label occurs."""

    def __len__(self) -> int: ...


class Selectable(LabeledData, Protocol):
    """Labeled data of which any rows can be taken."""

    def select(self, rows: NDArray[np.int64]) -> Self:
        """Those in these rows."""


DataT = TypeVar("DataT", bound=LabeledData)


SelectableT = TypeVar("SelectableT", bound=Selectable)


def drawn(whole: SelectableT, size: int, data: DataRecipe) -> tuple[SelectableT, SelectableT, str]:
    """Two parts, the first of this size, drawn at random, since data are often sorted by label. They are the same for
    every seed.
    """
    order = np.random.default_rng(0).permutation(len(whole))
    chosen = f"{data.valid_fraction:.0%} of {data.train}, drawn at random"
    return whole.select(np.sort(order[:size])), whole.select(np.sort(order[size:])), chosen


class LabelsJob(Job[ModelT], Generic[ModelT, DataT]):
    """Trains a model on labeled data. `unit` is what has a label."""

    counted_by: ClassVar[str]
    """The score that is the number of units."""
    recipe: Any
    parts: Any
    train: DataT
    valid: DataT | None
    test_data: DataT | None

    @abstractmethod
    def read(self, location: str) -> DataT:
        """Validation or test data, in the format of the training data."""

    @abstractmethod
    def parted(self, whole: DataT, size: int) -> tuple[DataT, DataT, str]:
        """The training data in two parts: `size` of them, and the others for validation; and how they were chosen."""

    @property
    @abstractmethod
    def score_columns(self) -> dict[str, str]:
        """The scores on the card with their titles. All are shares."""

    @property
    def example(self) -> str:
        """A text that the model reads from stdin; "" if a plain text is not enough for it."""
        return ""

    def split(self, whole: DataT) -> tuple[DataT, DataT | None, str]:
        """The training and the validation data, and where the latter come from, for people."""
        data = self.recipe.data
        if data.valid:
            return whole, self.read(data.valid), data.valid
        size = max(1, round(len(whole) * (1 - data.valid_fraction)))
        return self.parted(whole, size) if size < len(whole) else (whole, None, "none")

    def notes_on_labels(self) -> Iterator[str]:
        """Remarks on a validation that is missing, and on labels that only later data have."""
        if self.valid is None:
            yield "no validation data: the last weights are kept, and no score is measured"
        for what, part in (("validation", self.valid), ("test", self.test_data)):
            counts: Counter[str] = part.label_counts if part is not None else Counter()
            missing = sorted(counts.keys() - set(self.parts.labels.names))
            if missing:
                count = sum(counts[label] for label in missing)
                yield f"training has no {', '.join(missing)}: wrong {count:,} times in the {what} data"

    def about(self) -> str:
        names = self.parts.labels.names
        shown = ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
        return f"of {len(names)} labels ({shown})"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        columns = self.score_columns
        lines = [f"| data | {' | '.join(columns.values())} | {self.unit} |", f"|---{'|---' * len(columns)}|---|"]
        for name, found in scores.items():
            numbers = " | ".join(f"{100 * found[key]:.2f}" for key in columns)
            lines.append(f"| {name} | {numbers} | {found[self.counted_by]:,} |")
        last = next(reversed(scores.values()), None)
        return lines if last is None else [*lines, "", *label_table(last["per_label"])]

    def commands(self, path: str) -> list[str]:
        plain = [f'echo "{self.example}" | ensue predict {path}'] if self.example else []
        return [*plain, f"ensue predict {path} FILE > labeled", f"ensue evaluate {path} FILE --json"]
