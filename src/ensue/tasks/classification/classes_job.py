"""The base of the jobs that train classifiers, of texts or of frames: labels, threshold, scores, confusion matrix."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Protocol, TypeVar

import torch

from ensue.errors import DataError, listed
from ensue.metrics.classification import ClassificationScores
from ensue.models.classifier import Classifier
from ensue.runs.directory import RunDirectory
from ensue.tasks.classification.task import (
    Classification,
    Classified,
    classify,
    score_classifier,
    with_best_threshold,
)
from ensue.tasks.labels_job import LabeledData, LabelsJob
from ensue.text.classes import Classes


class Chosen(LabeledData, Protocol):
    """Texts or series in memory, with the labels of each."""

    labels: list[tuple[str, ...]]


DataT = TypeVar("DataT", bound=Chosen)


class ClassesJob(LabelsJob[Classifier, DataT]):
    """Trains a classifier. `one` is the unit in the singular."""

    counted_by: ClassVar[str] = "examples"
    one: ClassVar[str]
    multiple: bool
    """Whether one may have several labels."""
    task: Classification
    final: ClassificationScores | None = None
    """The scores of the best weights on the validation data."""

    @abstractmethod
    def encoded(self, data: DataT) -> Classified:
        """The data as the model reads them."""

    def begin_task(self) -> None:
        """Makes the task, once data and labels are there."""
        recipe = self.recipe
        self.task = Classification(
            self.encoded(self.train),
            self.encoded(self.valid) if self.valid else None,
            self.parts.labels,
            balanced=recipe.head.class_weights == "balanced",
            sizes=recipe.train,
        )

    def classes(self, read_as: str = "") -> Classes:
        """The labels of the training data. Raises DataError if there are no two."""
        counts = self.train.label_counts
        if len(counts) < 2:
            found = (
                f'all {len(self.train):,} {self.unit} have the label "{next(iter(counts))}"' if counts else "no label"
            )
            raise DataError(f"nothing to learn: {found}{read_as}", self.recipe.data.train)
        return Classes(sorted(counts), multiple=self.multiple)

    def notes_on_rare_labels(self) -> Iterator[str]:
        """A remark on labels that are there once."""
        if rare := sorted(label for label, count in self.train.label_counts.items() if count == 1):
            count = f"{len(rare):,} labels" if len(rare) > 1 else "the label"
            yield f"only one {self.one} to learn {count} from: {listed(rare)}"

    def prepare(self, model: Classifier) -> None:
        if self.recipe.head.class_weights == "none":
            model.start_from_shares(torch.from_numpy(self.parts.labels.shares(self.train.labels)).float())

    def finish(self, run: RunDirectory, model: Classifier) -> None:
        """Sets the threshold for several labels by the validation data, and scores these with it."""
        valid = self.task.valid
        if valid is None:
            return
        probabilities = classify(model, valid)
        self.parts = replace(self.parts, labels=with_best_threshold(self.parts.labels, valid.labels, probabilities))
        run.write({"labels.json": self.parts.labels.to_json()})
        self.final = score_classifier(probabilities, valid.labels, self.parts.labels)

    @property
    def confused(self) -> tuple[list[str], list[list[int]]] | None:
        final = self.final
        return None if final is None or final.confusion is None else (final.labels, final.confusion)

    def test(self, model: Classifier) -> ClassificationScores | None:
        if self.test_data is None:
            return None
        encoded = self.encoded(self.test_data)
        return score_classifier(classify(model, encoded), encoded.labels, self.parts.labels)

    @property
    def score_columns(self) -> dict[str, str]:
        return {
            "accuracy": "accuracy",
            "macro_f1": "macro F1",
            "weighted_f1": "weighted F1",
            "calibration_error": "calibration error",
        }
