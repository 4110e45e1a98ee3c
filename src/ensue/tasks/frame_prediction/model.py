"""The parts of a model of the next frame: what the training data have alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from ensue.models.build_frames import build_frame_predictor
from ensue.models.frame_predictor import FramePredictor
from ensue.runs.directory import RunDirectory
from ensue.tasks.frame_prediction.recipe import FramePredictionRecipe
from ensue.tasks.frames.model import FrameParts, read_frames_seen


@dataclass(frozen=True)
class FramePredictorParts(FrameParts):
    """The parts of a model of the next frame."""

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        return cls(read_frames_seen(run))

    def build(self, recipe: FramePredictionRecipe) -> FramePredictor:
        return build_frame_predictor(self.features(recipe), recipe.encoder, recipe.latent, recipe.head)

    def commands(self, recipe: Any, path: str) -> list[str]:
        return [
            f"ensue generate {path} --out new.npz --frames 100",
            f"ensue score {path} FILE",
            f"ensue predict {path} FILE --json",
            f"ensue evaluate {path} FILE --json",
        ]

    def python(self, recipe: Any) -> list[str]:
        return ["print(model.generate(frames=100))"]
