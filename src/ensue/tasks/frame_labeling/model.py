"""The parts of a tagger of frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ensue.models.build_frames import build_frame_tagger
from ensue.models.tagger import Tagger
from ensue.runs.directory import RunDirectory
from ensue.tasks.frame_labeling.recipe import FrameLabelingRecipe
from ensue.tasks.frames.model import LabeledFrameParts, read_frames_seen
from ensue.tasks.labeling.model import TagsContent
from ensue.text.labels import Labels


@dataclass(frozen=True)
class FrameTaggerParts(LabeledFrameParts):
    """The parts of a tagger of frames."""

    labels: Labels

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        return cls(read_frames_seen(run), run.read_json("labels.json", TagsContent, Labels.from_json))

    def build(self, recipe: FrameLabelingRecipe) -> Tagger:
        return build_frame_tagger(
            self.features(recipe), recipe.encoder, recipe.head, directions=recipe.directions, labels=self.labels
        )
