"""The base of the jobs that train on labels: what they say of data, labels and scores."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from torch import nn

from ensue.errors import distinct_names, listed
from ensue.runs.pictures import picture
from ensue.runs.reporter import score_table
from ensue.tasks.contract.data_set import DataSetJob, Examples

ModelT = TypeVar("ModelT", bound=nn.Module)
MOST_NAMES = 20
"""The most labels that the card names."""
CONFUSION = "confusion.png"
MOST_LABELS = 40
"""The most labels that are drawn: the most frequent ones."""
MOST_NUMBERS = 15
MOST_CHARACTERS = 20


class LabeledData(Examples, Protocol):
    """Labeled texts, sentences or series in memory."""

    @property
    def label_counts(self) -> Counter[str]:
        """How often each label occurs."""


DataT = TypeVar("DataT", bound=LabeledData)


class LabelsJob(DataSetJob[ModelT, DataT], Generic[ModelT, DataT]):
    """Trains a model on labeled data. The unit of the data set is what has a label."""

    counted_by: ClassVar[str]
    """The score that is the number of units."""
    parts: Any

    @property
    @abstractmethod
    def score_columns(self) -> Mapping[str, tuple[str, str]]:
        """The scores on the card with their titles and formats."""

    @property
    def unit(self) -> str:  # type: ignore[override]  # that of its data
        """The unit that has a label."""
        return self.data_set.unit

    @property
    def confused(self) -> tuple[list[str], list[list[int]]] | None:
        """The labels of the validation data, and how often each (a row) was predicted as each; None if nothing was."""
        return None

    def pictures(self) -> dict[str, Callable[[Path], None]]:
        """The confusion matrix of the validation data."""
        if (found := self.confused) is None:
            return {}
        return {CONFUSION: lambda path: draw_confusion(*found, path, title=path.parent.name)}

    @property
    def notes(self) -> list[str]:
        """Remarks on the data, and on labels that only later data have."""
        notes = super().notes
        for what, part in (("validation", self.split.valid), ("test", self.split.test)):
            counts = self.label_counts(part) if part is not None else Counter[str]()
            missing = sorted(counts.keys() - set(self.parts.labels.names))
            if missing:
                count = sum(counts[label] for label in missing)
                notes.append(f"training has no {listed(missing)}: wrong {count:,} times in the {what} data")
        if self.split.valid is not None and not self.recipe.data.valid:
            known, seen = (self.label_counts(part) for part in (self.split.train, self.split.valid))
            if unseen := [f"{name} ({count:,} in training)" for name, count in known.most_common() if not seen[name]]:
                notes.append(f"validation has no {listed(unseen[::-1])}: no score tells how well that is learned")
        return notes

    def label_counts(self, part: DataT) -> Counter[str]:
        """How often each label occurs in a part of the data."""
        return part.label_counts

    def about(self) -> str:
        names = self.parts.labels.names
        return f"of {len(names)} labels ({listed(names, MOST_NAMES)})"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        lines = score_table(scores, {**self.score_columns, self.counted_by: (self.unit, ",")})
        last = next(reversed(scores.values()), None)
        return lines if last is None else [*lines, "", *label_table(last["per_label"])]

    def commands(self, path: str) -> list[str]:
        example = self.data_set.example
        plain = [f'echo "{example}" | ensue predict {path}'] if example else []
        return [*plain, f"ensue predict {path} FILE > labeled", f"ensue evaluate {path} FILE --json"]


def label_table(per_label: dict[str, dict[str, Any]]) -> list[str]:
    """The scores of each label as a table in Markdown; the label with the lowest F1 comes first."""
    lines = ["| label | precision | recall | F1 | in the data |", "|---|---|---|---|---|"]
    for label, score in sorted(per_label.items(), key=lambda item: (item[1]["f1"], item[0])):
        shares = " | ".join(f"{100 * score[key]:.1f}" for key in ("precision", "recall", "f1"))
        cell = label.replace("|", r"\|")
        lines.append(f"| {cell} | {shares} | {score['support']:,} |")
    return lines


def draw_confusion(labels: list[str], counts: list[list[int]], path: Path, *, title: str) -> None:
    """Draws the matrix. Rows are the right labels, columns the predicted ones; the color is the share of the row."""
    matrix = np.array(counts)
    shown = np.sort(np.argsort(-matrix.sum(1), kind="stable")[:MOST_LABELS])
    matrix, names = matrix[np.ix_(shown, shown)], distinct_names([labels[row] for row in shown], MOST_CHARACTERS)
    size = 2.4 + 0.42 * len(names)
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    with picture(path, (size + 1.2, size)) as figure:
        axes = figure.add_subplot()
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set(xlabel="predicted", ylabel="right", title=title)
        if len(names) <= MOST_NUMBERS:
            for row, column in np.ndindex(*matrix.shape):
                color = "white" if shares[row, column] > 0.5 else "#1f4e79"
                axes.text(column, row, f"{matrix[row, column]:,}", ha="center", va="center", color=color, fontsize=8)
