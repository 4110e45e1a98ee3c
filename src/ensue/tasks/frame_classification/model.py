"""The parts of a classifier of frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ensue.models.build_frames import build_frame_classifier
from ensue.models.classifier import Classifier
from ensue.runs.directory import RunDirectory
from ensue.tasks.classification.model import ClassesContent
from ensue.tasks.frame_classification.recipe import FrameClassificationRecipe
from ensue.tasks.frames.model import LabeledFrameParts, read_frames_seen
from ensue.text.classes import Classes


@dataclass(frozen=True)
class FrameClassifierParts(LabeledFrameParts):
    """The parts of a classifier of frames."""

    labels: Classes

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        return cls(read_frames_seen(run), run.read_json("labels.json", ClassesContent, Classes.from_json))

    def build(self, recipe: FrameClassificationRecipe) -> Classifier:
        return build_frame_classifier(
            self.features(recipe), recipe.encoder, recipe.head, directions=recipe.directions,
            num_labels=len(self.labels), multiple=self.labels.multiple,
        )  # fmt: skip
