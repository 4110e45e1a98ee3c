"""The base of the jobs that train on labels: what they say of data, labels and scores."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from torch import nn

from ensue.errors import listed
from ensue.tasks.confusion_picture import CONFUSION, draw_confusion
from ensue.tasks.label_table import label_table
from ensue.tasks.split_job import Examples, SplitJob

ModelT = TypeVar("ModelT", bound=nn.Module)
MOST_NAMES = 20
"""The most labels that the card names."""


class LabeledData(Examples, Protocol):
    """Labeled texts, sentences or series in memory."""

    @property
    def label_counts(self) -> Counter[str]:
        """How often each label occurs."""


DataT = TypeVar("DataT", bound=LabeledData)


class LabelsJob(SplitJob[ModelT, DataT], Generic[ModelT, DataT]):
    """Trains a model on labeled data. `unit` is what has a label."""

    counted_by: ClassVar[str]
    """The score that is the number of units."""
    parts: Any

    @property
    @abstractmethod
    def score_columns(self) -> dict[str, str]:
        """The scores on the card with their titles. All are shares."""

    @property
    def example(self) -> str:
        """A text that the model reads from stdin; "" if a plain text is not enough for it."""
        return ""

    @property
    def confused(self) -> tuple[list[str], list[list[int]]] | None:
        """The labels of the validation data, and how often each (a row) was predicted as each; None if nothing was."""
        return None

    def pictures(self) -> dict[str, Callable[[Path], None]]:
        """The confusion matrix of the validation data."""
        if (found := self.confused) is None:
            return {}
        return {CONFUSION: lambda path: draw_confusion(*found, path, title=path.parent.name)}

    def notes_on_labels(self) -> Iterator[str]:
        """Remarks on a validation that is missing, and on labels that only later data have."""
        yield from self.notes_on_validation()
        for what, part in (("validation", self.valid), ("test", self.test_data)):
            counts: Counter[str] = part.label_counts if part is not None else Counter()
            missing = sorted(counts.keys() - set(self.parts.labels.names))
            if missing:
                count = sum(counts[label] for label in missing)
                yield f"training has no {listed(missing)}: wrong {count:,} times in the {what} data"

    def about(self) -> str:
        names = self.parts.labels.names
        return f"of {len(names)} labels ({listed(names, MOST_NAMES)})"

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
