"""A classifier of frames in use: predicts labels with probabilities, and evaluates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.frames.series import Series
from ensue.data.frames.stored import FrameRows
from ensue.inspection.notebook import Answers
from ensue.inspection.page import Inspection
from ensue.metrics.classification import ClassificationScores
from ensue.metrics.comparison import ScoredItems
from ensue.models.classifier import Classifier
from ensue.tasks.classification.data import class_labels
from ensue.tasks.classification.pipeline import Choosing, Classified
from ensue.tasks.classification.recipe import FrameClassificationRecipe
from ensue.tasks.classification.series_page import inspect_series
from ensue.tasks.classification.task import ClassifiedFrames, Judged, items_of, scores_of
from ensue.tasks.contract.portable import Portable
from ensue.tasks.frames.pipeline import LabeledFramesPipeline, PortableFrames, chunked, frames_from


class ClassifiedSeries(Classified):
    """A series, by its name, with its labels and the probability of every label."""

    @property
    def line(self) -> str:
        """The series, its labels, and the probability of the first."""
        return f"{self.texts[0]}\t{' '.join(self.labels) or '-'}\t{self.probability:.4f}"

    def as_json(self) -> dict[str, Any]:
        found = super().as_json()
        return {"series": found.pop("texts")[0], **found}


class LabelsOfSeries(NamedTuple):
    """A series, its labels, and the probabilities of all labels (K,)."""

    series: Series
    labels: tuple[str, ...]
    probabilities: NDArray[np.float32]


class FrameClassificationPipeline(Choosing, LabeledFramesPipeline[ClassifiedSeries]):
    """A classifier of frames: predicts and evaluates."""

    recipe: FrameClassificationRecipe

    def predict(self, texts: Iterable[Any]) -> list[ClassifiedSeries]:
        """The labels of each series: an array of numbers (T, d), one of `source`, or the samples (n,) of a sound at the
        rate of the training data.
        """
        return Answers(self.answers(self._given(texts)))

    def answers(self, series: Iterable[Series], *, in_full: bool = True) -> Iterator[ClassifiedSeries]:
        for one, labels, probabilities in self.classify(series):
            shares = dict(zip(self.labels.names, probabilities.tolist(), strict=True))
            yield ClassifiedSeries((one.name,), labels, shares)

    def classify(self, series: Iterable[Series]) -> Iterator[LabelsOfSeries]:
        """The labels of a stream of series of any length, in order, in constant memory."""
        for chunk in chunked(series):
            rows = FrameRows.of([one.frames for one in chunk])
            probabilities = ClassifiedFrames(rows, []).probabilities(self.model)
            for one, shares in zip(chunk, probabilities, strict=True):
                yield LabelsOfSeries(one, self.labels.chosen(shares, at_least=self.at_least), shares)

    def inspect(self, series: Any) -> Inspection:
        """Look into the model with a series, as numbers and as a page. `series` is the path of a file that has
        one, or as for `predict`.
        """
        shown, facts = self.series_view(self.only(series)), self.facts(self.recipe.describe())
        head = " + ".join(self.recipe.head.pooling)
        return inspect_series(self.model, shown, self.labels, facts | {"head": head})

    def evaluate(self, location: str | Path, *, encoding: str = "utf-8") -> ClassificationScores:
        """The scores on labeled series. Raises DataError for one without a label."""
        return scores_of(self.labels, self._judged(location, encoding))

    def scored_items(self, location: str | Path, *, encoding: str = "utf-8") -> ScoredItems:
        return items_of(self.labels, self._judged(location, encoding), "series")

    def _judged(self, location: str | Path, encoding: str) -> Iterator[Judged]:
        for answer in self.classify(self._whole(location, encoding)):
            right = class_labels(answer.series, separator=self.recipe.data.separator, multiple=self.labels.multiple)
            yield Judged(right, self.labels.chosen(answer.probabilities), answer.probabilities)

    def portable(self) -> Portable:
        return PortableFrames(self).portable(_classified, "frame_classifier", {"classes": self.labels.to_json()})


def _classified(model: Classifier, frames: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    """The probabilities of the labels, and the logits."""
    logits = model([frames_from(frames, lengths)])
    return {"probabilities": model.probabilities(logits), "logits": logits}
