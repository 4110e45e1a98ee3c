"""The job of training a classifier of frames."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.frames.series import Series
from ensue.data.frames.stored import FrameRows
from ensue.errors import listed
from ensue.models.classifier import Classifier
from ensue.models.frame_features import Frames
from ensue.models.modules import device_of
from ensue.tasks.classification.classes_job import ClassesJob
from ensue.tasks.classification.task import probabilities_of
from ensue.tasks.contract.task import WHOLE, Cut
from ensue.tasks.frame_classification.model import FrameClassifierParts
from ensue.tasks.frame_classification.recipe import FrameClassificationRecipe
from ensue.tasks.frames.data import LabeledSeries, frames_of
from ensue.tasks.frames.job import LabeledFramesJob


class ClassifiedFrames(NamedTuple):
    """Series as a classifier reads them, with the labels of their file."""

    rows: FrameRows
    labels: list[tuple[str, ...]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of frames of each series."""
        return self.rows.lengths

    def batch(self, rows: NDArray[np.int64], device: torch.device, cut: Cut = WHOLE) -> tuple[Frames, ...]:
        """The batch of these rows, cut."""
        return (frames_of(self.rows, rows, device, cut),)

    def probabilities(self, model: Classifier) -> NDArray[np.float32]:
        """The probability of each label (N, K), in order."""
        device = device_of(model)
        return probabilities_of(model, self.lengths, lambda rows: model(self.batch(rows, device)))


class FrameClassificationJob(ClassesJob[LabeledSeries], LabeledFramesJob[Classifier]):
    """Trains a classifier of frames."""

    one: ClassVar[str] = "series"
    recipe: FrameClassificationRecipe
    parts: FrameClassifierParts

    def labels_of(self, series: Series) -> tuple[str, ...]:
        separator = self.recipe.data.separator
        return class_labels(series, separator, multiple=bool(separator))

    def made_parts(self) -> FrameClassifierParts:
        parts = [part for part in (self.train, self.valid, self.test_data) if part is not None]
        self.multiple = any(len(labels) != 1 for part in parts for labels in part.labels)
        return FrameClassifierParts(self.seen(), self.classes())

    def encoded(self, data: LabeledSeries) -> ClassifiedFrames:
        return ClassifiedFrames(data.rows, data.labels)

    @property
    def notes(self) -> list[str]:
        return [*self.notes_on_rare_labels(), *super().notes]


def class_labels(series: Series, separator: str, *, multiple: bool) -> tuple[str, ...]:
    """The labels of a whole series, between which the separator stands. Raises DataError if it has none, unless it may
    have any number, and if its frames have different ones.
    """
    names = tuple(dict.fromkeys(series.labels))
    if len(names) > 1:
        found = (
            f"{series.name}: its frames have {len(names):,} labels ({', '.join(names[:3])}{', ...' * (len(names) > 3)})"
        )
        raise series.error(f"{found}; tag-frames learns a label for each frame")
    labels = tuple(part for name in names for part in (name.split(separator) if separator else [name]) if part)
    if len(labels) == 1 or multiple:
        return labels
    if labels:
        raise series.error(f"{series.name}: several labels ({listed(labels)}); a series of the training data has one")
    advice = "data.pattern finds it in names of files, and the names of folders can be labels"
    raise series.error(f"{series.name}: no label; {advice}")
