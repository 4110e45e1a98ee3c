"""The parts that models of frames share: what the training data have alike, and their labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, FiniteFloat

from ensue.data.frames.source import Shape
from ensue.data.frames.stored import FrameRows, moments
from ensue.models.frame_features import FrameFeatures
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Content, DamagedError
from ensue.tasks.contract.model import ModelParts
from ensue.tasks.frames.recipe import FramesRecipe

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class FramesContent(Content):
    """`frames.json`."""

    kind: Literal["frames"]
    format_version: Annotated[int, Field(ge=1, le=1)]
    rate: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    is_sound: bool
    columns: list[str]
    mean: Annotated[list[FiniteFloat], Field(min_length=1)]
    deviation: Annotated[list[Positive], Field(min_length=1)]


@dataclass(frozen=True)
class FramesSeen:
    """The shape of the frames of the training data, and the `mean` and `deviation` of each of their features."""

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
    def from_json(cls, content: dict[str, Any]) -> Self:
        """The inverse of `to_json`; raises ValueError for lists of different lengths."""
        mean, deviation, columns = (tuple(content[key]) for key in ("mean", "deviation", "columns"))
        if len(mean) != len(deviation) or len(columns) not in (0, len(mean)):
            raise ValueError("mean, deviation and columns must be as long as each other")
        shape = Shape(len(mean), content["rate"], columns, content["is_sound"], "the training data")
        return cls(shape, mean, deviation)

    def to_json(self) -> dict[str, Any]:
        """Everything that `from_json` needs, as JSON values."""
        shape = self.shape
        return {
            "kind": "frames", "format_version": 1, "rate": float(shape.rate), "is_sound": shape.is_sound,
            "columns": list(shape.columns), "mean": list(self.mean), "deviation": list(self.deviation),
        }  # fmt: skip


@dataclass(frozen=True)
class FrameParts(ModelParts):
    """The parts that a model of frames is built from."""

    seen: FramesSeen

    def features(self, recipe: FramesRecipe) -> FrameFeatures:
        """The features of the model."""
        mean, deviation = (torch.tensor(part, dtype=torch.float64) for part in (self.seen.mean, self.seen.deviation))
        return FrameFeatures(recipe.features, mean, deviation)

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
    seen = run.read_json("frames.json", FramesContent, FramesSeen.from_json)
    recipe: Any = run.recipe
    if seen.shape.is_sound and seen.shape.width != recipe.features.bands:
        raise DamagedError(f"{run.path / 'frames.json'}: not the model's: the recipe has {recipe.features.bands} bands")
    return seen
