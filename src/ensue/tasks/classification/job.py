"""The job of training a classifier: labels, threshold, scores, confusion matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.kept_columns import kept_array
from ensue.errors import DataError, listed
from ensue.metrics.classification import ClassificationScores, best_temperature
from ensue.models.classifier import Classifier
from ensue.models.ngram_bag import MIN_TEXTS
from ensue.runs.directory import RunDirectory
from ensue.tasks.classification.data import DocumentData
from ensue.tasks.classification.task import (
    Classification,
    ClassifiedTexts,
    classify,
    score_classifier,
    weigh_ngrams,
    with_best_threshold,
)
from ensue.tasks.contract.labels_job import LabelsJob
from ensue.text.labels import Classes


class ClassificationJob(LabelsJob[Classifier, Any]):
    """Trains a classifier."""

    counted_by: ClassVar[str] = "examples"
    data_class: ClassVar[Callable[..., Any]] = DocumentData
    """The data set, called with the recipe and the run that is resumed; a job of other inputs has another one."""
    data_set: Any
    task: Classification
    final: ClassificationScores | None = None
    """The scores of the best weights on the validation data."""
    calibration: str = ""
    """The effect of the temperature of probabilities, as a line of the card."""

    def __init__(self, recipe: Any, run: RunDirectory | None = None) -> None:
        data = self.data_class(recipe, run)
        super().__init__(recipe, data)
        self.is_new = run is None
        self.parts = data.parts(self._classes(data)) if run is None else data.parts_of(run)
        self.task = Classification(
            data.encoded(self.split.train, self.parts),
            data.encoded(self.split.valid, self.parts) if self.split.valid else None,
            self.parts.labels,
            balanced=recipe.head.class_weights == "balanced",
            sizes=recipe.train,
            soft=data.soft_targets(self.parts.labels),
        )

    def _classes(self, data: Any) -> Classes:
        """Return the labels of the training data, and of a teacher. Raises DataError if there are no two."""
        train = data.split.train
        names = {*train.label_counts, *(() if data.answers is None else data.answers.names)}
        if len(names) < 2:
            only = f'all {len(train):,} {data.unit} have the label "{next(iter(names))}"' if names else "no label"
            raise DataError(f"nothing to learn: {only}{data.read_as}", self.recipe.data.train)
        classes = Classes(sorted(names), multiple=data.multiple)
        return classes if data.kept is None else data.kept.labels(classes)

    @property
    def notes(self) -> list[str]:
        """Remarks on labels that are there once, and on the data."""
        notes = super().notes
        if rare := sorted(label for label, count in self.split.train.label_counts.items() if count == 1):
            count = f"{len(rare):,} labels" if len(rare) > 1 else "the label"
            notes.insert(0, f"only one {self.data_set.one} to learn {count} from: {listed(rare)}")
        return notes

    def prepare(self, model: Classifier) -> None:
        model.temperature = 1.0  # of a run that is resumed: it is measured at the end
        labels, train = self.parts.labels, self.task.train
        if model.bag is not None:
            assert isinstance(train, ClassifiedTexts)
            least, weights = min(MIN_TEXTS, self.recipe.features.min_count), self.recipe.head.ngram_weights
            bag, key = model.bag, [self.split.key, self.parts.lexicon.to_json(), labels.names, weights, least]

            def weighed() -> NDArray[np.float32]:
                weigh_ngrams(bag, weights, train, labels.matrix(train.labels), least=least)
                return bag.ratio.detach().numpy()

            sizes = [bag.longest, bag.num_rows, bag.tables]
            bag.weigh(torch.from_numpy(kept_array([*key, *sizes], ".ngrams", weighed) if self.split.key else weighed()))
            if self.is_new or self.parts.ngrams is not None:
                self.parts = replace(self.parts, ngrams=model.bag.keep_weighed())
        if self.recipe.head.class_weights == "none":
            model.start_from_shares(torch.from_numpy(self.task.shares).float())

    def finish(self, run: RunDirectory, model: Classifier) -> None:
        """Set temperature and threshold by the validation data, and score these data with them."""
        valid, labels = self.task.valid, self.parts.labels
        if valid is None:
            return
        model.temperature = 1.0
        probabilities = classify(model, valid)
        before = score_classifier(probabilities, valid.labels, with_best_threshold(labels, valid.labels, probabilities))
        matrix = labels.matrix(valid.labels)
        model.temperature = best_temperature(matrix, probabilities, multiple=labels.multiple)
        probabilities = classify(model, valid)
        labels = with_best_threshold(labels, valid.labels, probabilities, model.temperature)
        self.parts = replace(self.parts, labels=labels)
        run.write({"labels.json": labels.to_json()})
        self.final = score_classifier(probabilities, valid.labels, labels)
        self.calibration = (
            f"- calibration: temperature {model.temperature:.2f}; on the validation data the calibration error was "
            f"{100 * before.calibration_error:.2f} % before and is {100 * self.final.calibration_error:.2f} % now"
        )

    def data_lines(self) -> list[str]:
        return [*super().data_lines(), *([self.calibration] if self.calibration else [])]

    @property
    def confused(self) -> tuple[list[str], list[list[int]]] | None:
        final = self.final
        return None if final is None or final.confusion is None else (final.labels, final.confusion)

    def test(self, model: Classifier) -> ClassificationScores | None:
        if self.split.test is None:
            return None
        encoded = self.data_set.encoded(self.split.test, self.parts)
        return score_classifier(classify(model, encoded), encoded.labels, self.parts.labels)

    @property
    def score_columns(self) -> Mapping[str, tuple[str, str]]:
        return ClassificationScores.on_card
