"""The parts that models of frames share: what the training data have alike, and their labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import torch

from ensue.extensions.frames.data.source import Shape
from ensue.extensions.frames.data.stored import FrameRows, moments
from ensue.extensions.frames.models.frame_features import FrameFeatures
from ensue.extensions.frames.tasks import FramesRecipe
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import DamagedError
from ensue.stored import Bounds, Stored
from ensue.tasks.contract.model import ModelParts


@dataclass(frozen=True)
class FramesSeen(Stored):
    """The shape of the frames of the training data, and the `mean` and `deviation` of each of their features."""

    kind: ClassVar[str] = "frames"
    shape: Shape
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, shape: Shape, rows: FrameRows, *, normalize: bool) -> Self:
        """Shape and statistics of the training data; without `normalize` 0 and 1, by which nothing changes."""
        if not normalize:
            return cls(shape, (0.0,) * shape.width, (1.0,) * shape.width)
        mean, deviation = moments([rows.values])
        return cls(shape, tuple(mean.tolist()), tuple(deviation.tolist()))

    @classmethod
    def _restored(
        cls,
        rate: Annotated[float, Bounds(0, math.inf)],
        is_sound: bool,
        columns: tuple[str, ...],
        mean: tuple[float, ...],
        deviation: tuple[float, ...],
    ) -> Self:
        """Raises ValueError for lists of different lengths, and for a deviation that is none."""
        if not mean or len(mean) != len(deviation) or len(columns) not in (0, len(mean)):
            raise ValueError("mean, deviation and columns must be as long as each other")
        if min(deviation) <= 0:
            raise ValueError(f"deviation: expected numbers above 0, found {min(deviation)}")
        return cls(Shape(len(mean), rate, columns, is_sound, "the training data"), mean, deviation)

    def to_json(self) -> dict[str, Any]:
        shape = self.shape
        return {
            "kind": self.kind, "format_version": 1, "rate": float(shape.rate), "is_sound": shape.is_sound,
            "columns": list(shape.columns), "mean": list(self.mean), "deviation": list(self.deviation),
        }  # fmt: skip


@dataclass(frozen=True)
class FrameParts(ModelParts):
    """The parts that a model of frames is built from."""

    seen: FramesSeen

    def features(self, recipe: FramesRecipe) -> FrameFeatures:
        """The features of the model."""
        mean, deviation = (torch.tensor(part, dtype=torch.float64) for part in (self.seen.mean, self.seen.deviation))
        return FrameFeatures(recipe.features, mean, deviation, is_sound=self.seen.shape.is_sound)

    def files(self) -> dict[str, Any]:
        return {"frames.json": self.seen.to_json()}

    def python(self, recipe: Any) -> list[str]:
        return ['print(model.predict(model.source("FILE")))']


@dataclass(frozen=True)
class LabeledFrameParts(FrameParts):
    """The parts that a model that labels frames is built from."""

    labels: Any

    def files(self) -> dict[str, Any]:
        return {**super().files(), "labels.json": self.labels.to_json()}


def read_frames_seen(run: RunDirectory) -> FramesSeen:
    """The shape and the statistics of the frames of a run. Raises RunError if their file is damaged."""
    seen = run.read_json("frames.json", FramesSeen.from_json)
    recipe: Any = run.recipe
    if seen.shape.is_sound and seen.shape.width != recipe.features.bands:
        raise DamagedError(f"{run.path / 'frames.json'}: not the model's: the recipe has {recipe.features.bands} bands")
    return seen
