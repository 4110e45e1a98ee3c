"""The training of a classifier: weights of n-grams, temperature, threshold, scores."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.cached_columns import cache_array
from ensue.errors import DataError, RecipeError, list_names
from ensue.metrics.classification import ClassificationScores, best_temperature
from ensue.models.classifier import Classifier
from ensue.models.ngram_bag import MAX_TEXTS, MIN_TEXTS, NUM_FOLDS, SOLVER_IDF_POWER
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
from ensue.tasks.contract.data_set import LabelsJob
from ensue.text.labels import Classes


class ClassificationJob(LabelsJob[Classifier]):
    """The job of a classifier."""

    support_name: ClassVar[str] = "examples"
    score_columns = ClassificationScores.on_card
    finishing_validations: ClassVar[int] = 2
    data_class: ClassVar[Callable[..., Any]] = DocumentData
    task: Classification
    calibration: str = ""
    """A line of the card: the calibration error, and with validation data the temperature of the probabilities."""

    def __init__(self, recipe: Any, run: RunDirectory | None = None) -> None:
        super().__init__(recipe, data := self.data_class(recipe, run))
        self.is_new = run is None
        self.parts = data.parts(self._collect_labels(data)) if run is None else data.resumed_parts(run)
        train = self.encode(self.split.train)
        valid = self.encode(self.split.valid) if self.split.valid else None
        labels, balanced = self.parts.labels, recipe.head.class_weights == "balanced"
        soft = data.soft_targets(labels)
        sizes, folds = recipe.train, self._assign_folds() if recipe.is_gradient_free else None
        self.task = Classification(train, valid, labels, balanced=balanced, sizes=sizes, soft=soft, folds=folds)

    def _assign_folds(self) -> NDArray[np.int64]:
        """Return the cross-validation fold of each text for `head.solver = "lbfgs"`, after checks of the data."""
        train, problem = self.split.train, ""
        if len(train) > MAX_TEXTS:
            problem = f"is for at most {MAX_TEXTS:,} texts, found {len(train):,}"
        elif missing := sorted({*self.parts.labels.names} - train.label_counts.keys()):  # labels of an earlier run
            problem = f"replaces all weights, and no text has the label {list_names(missing)}"
        if problem:
            raise RecipeError(f'head.solver = "lbfgs" {problem}; use the recipe classify-bag')
        return self.folds(NUM_FOLDS, classes=train.labels.max_ranks())

    def _collect_labels(self, data: Any) -> Classes:
        train = data.split.train
        names = {*train.label_counts, *(() if data.teacher is None else data.teacher.names)}
        if len(names) < 2:
            problem = f'all {len(train):,} {data.unit} have the label "{next(iter(names))}"' if names else "no label"
            if data.split.valid is not None and (others := sorted(data.split.valid.label_counts.keys() - names)):
                problem += f", and only validation {data.unit} have {list_names(others)}"
                problem = "; ".join((problem, *data.split.notes))
            raise DataError(f"nothing to learn: {problem}{data.layout_note}", self.recipe.data.train)
        classes = Classes(sorted(names), multiple=data.multiple)
        return classes if data.extended is None else data.extended.labels(classes)

    @property
    def notes(self) -> list[str]:
        """Remarks on the data, the first on labels with a single text."""
        notes = super().notes
        if rare := sorted(label for label, count in self.split.train.label_counts.items() if count == 1):
            have = f"{len(rare):,} labels have" if len(rare) > 1 else "a label has"
            notes.insert(0, f"{have} only one {self.data_set.unit_singular} to learn from: {list_names(rare)}")
        return notes

    def prepare(self, model: Classifier) -> None:
        model.temperature = 1.0  # a resumed run may have stored another temperature; `finish` fits a new one
        labels, train = self.parts.labels, self.task.train
        if model.bag is not None:
            assert isinstance(train, ClassifiedTexts)
            min_texts, weights = min(MIN_TEXTS, self.recipe.features.min_count), self.recipe.head.ngram_weights
            bag, key = model.bag, [self.split.key, self.parts.lexicon.to_json(), labels.names, weights, min_texts]
            power = SOLVER_IDF_POWER if self.recipe.is_gradient_free else 1.0
            key += [bag.longest, bag.num_rows, bag.tables, power]

            def ratios() -> NDArray[np.float32]:
                matrix = labels.matrix(train.labels)
                weigh_ngrams(bag, weights, train, matrix, min_texts=min_texts, idf_power=power)
                return bag.ratio.detach().numpy()

            bag.weigh(torch.from_numpy(cache_array(key, ".ngrams", ratios) if self.split.key else ratios()))
            if self.data_set.extended is not None:
                bag.weigh(self.data_set.extended.ratios(bag))
            if self.is_new or self.parts.ngrams is not None:
                self.parts = replace(self.parts, ngrams=model.bag.remove_unweighted())
        if self.recipe.head.class_weights == "none":
            model.start_from_frequencies(torch.from_numpy(self.task.shares).float())

    def finish(self, run: RunDirectory, model: Classifier) -> None:
        """Fit temperature and threshold to validation data, or the threshold to cross-validation, and score."""
        valid, labels, probabilities = self.task.valid, self.parts.labels, self.task.cross_validated
        if valid is not None:
            model.temperature = 1.0
            uncalibrated = classify(model, valid)
            model.temperature = best_temperature(labels.matrix(valid.labels), uncalibrated, multiple=labels.multiple)
            probabilities = classify(model, valid)
        if probabilities is None:
            return
        gold = (self.task.train if valid is None else valid).labels
        labels = with_best_threshold(labels, gold, probabilities, model.temperature)
        self.parts, self.task.labels = replace(self.parts, labels=labels), labels
        run.write({"labels.json": labels.to_json()})
        self.best_scores = score_classifier(probabilities, gold, labels)
        error = f"{100 * self.best_scores.calibration_error:.2f} %"
        self.calibration = f"- calibration: the error in cross-validation is {error}"
        if valid is not None:
            before = score_classifier(uncalibrated, gold, with_best_threshold(labels, gold, uncalibrated))
            self.calibration = (
                f"- calibration: temperature {model.temperature:.2f}; on the validation data the calibration error was "
                f"{100 * before.calibration_error:.2f} % before and is {error} now"
            )

    def data_lines(self) -> list[str]:
        return [*super().data_lines(), *([self.calibration] if self.calibration else [])]

    @property
    def confusion(self) -> tuple[list[str], list[list[int]]] | None:
        scores = self.best_scores
        return None if scores is None or scores.confusion is None else (scores.labels, scores.confusion)
