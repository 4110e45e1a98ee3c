"""The base of the jobs that train taggers, of words or of frames: labels and their scheme, tags, scores."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, TypeVar

import numpy as np

from ensue.errors import DataError
from ensue.metrics.labeling import LabelingScores
from ensue.models.tag_heads import ViterbiTagHead
from ensue.models.tagger import Tagger
from ensue.runs.directory import RunDirectory
from ensue.tasks.labeling.task import Labeled, Labeling, evaluate_tagger
from ensue.tasks.labels_job import LabeledData, LabelsJob
from ensue.text.labels import Labels
from ensue.text.scheme_detection import SchemeDetector

DataT = TypeVar("DataT", bound=LabeledData)


class TagsJob(LabelsJob[Tagger, DataT]):
    """Trains a tagger."""

    counted_by: ClassVar[str] = "tokens"
    task: Labeling
    final: LabelingScores | None = None
    """The scores of the best weights on the validation data."""

    @abstractmethod
    def encoded(self, data: DataT) -> Labeled:
        """The data as the model reads them."""

    def begin_task(self) -> None:
        """Makes the task, once data and labels are there."""
        recipe = self.recipe
        self.task = Labeling(
            self.encoded(self.train),
            self.encoded(self.valid) if self.valid else None,
            self.parts.labels,
            recipe.train,
        )

    def tags(self, detector: SchemeDetector, advice: str = "") -> Labels:
        """The labels of the training data. Raises DataError if there are no two."""
        counts = self.train.label_counts
        if len(counts) < 2:
            only = next(iter(counts), "")
            found = f'all {counts[only]:,} {self.unit} have the label "{only}"' if counts else "no label"
            raise DataError(f"nothing to learn: {found}{advice}", self.recipe.data.train)
        scheme = detector.result(self.recipe.data.train)
        wanted = self.recipe.head.scheme
        tag_scheme = None if scheme is None else scheme if wanted == "file" else wanted
        return Labels(sorted(counts), scheme=scheme, tag_scheme=tag_scheme)

    def prepare(self, model: Tagger) -> None:
        tags = self.task.tags
        model.head.start_from_counts(np.bincount(tags.values, minlength=len(self.parts.labels)))
        if isinstance(model.head, ViterbiTagHead):
            model.head.count_bigrams(np.split(tags.values, tags.starts[1:-1]))

    def finish(self, run: RunDirectory, model: Tagger) -> None:
        """Scores the validation data with the best weights, for the picture of confusions."""
        self.final = self.task.validate(model)

    @property
    def confused(self) -> tuple[list[str], list[list[int]]] | None:
        return None if self.final is None else self.final.matrix()

    def test(self, model: Tagger) -> LabelingScores | None:
        return (
            None if self.test_data is None else evaluate_tagger(model, self.encoded(self.test_data), self.parts.labels)
        )

    @property
    def score_columns(self) -> dict[str, str]:
        if self.parts.labels.has_spans:
            return {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "F1"}
        return {"accuracy": "accuracy", "macro_f1": "macro F1"}
