"""Features of frames, and what models of frames are built from: the shape of the training data, and their labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.extensions.frames.data.series import FrameRows, moments
from ensue.extensions.frames.data.source import Shape
from ensue.extensions.frames.recipe import FrameFeatureSpecification, FramesRecipe
from ensue.nn.draws import normal, uniform
from ensue.nn.dropout import ElementDropout
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import DamagedError
from ensue.stored import Bounds, Stored
from ensue.tasks.contract.model import ModelParts
from ensue.text.labels import Classes


class Frames(NamedTuple):
    """A batch of series, a kind of `Positions`: `values`, NaN where they are missing, and a mask."""

    values: Float[Tensor, "B T d"]
    mask: Bool[Tensor, "B T"] | None
    subwords: None = None

    def part(self, rows: slice) -> Self:
        """Return the batch of some of its rows."""
        return self._replace(values=self.values[rows], mask=None if self.mask is None else self.mask[rows])

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of places in each, (B, T)."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def num_real(self) -> int:
        """The number of real frames."""
        return self.shape[0] * self.shape[1] if self.mask is None else int(self.mask.sum())

    @property
    def keys(self) -> Int[Tensor, "B T"]:
        """Zeros: frames have no identity as words have."""
        return torch.zeros(self.shape, dtype=torch.int64, device=self.values.device)


KNOTS = 8
"""Bands, evenly spaced, at which a filter is drawn; between them it is linear."""


class FrameFeatures(nn.Module):
    """`(x − mean) / deviation` of each feature of a frame, both (d,) and not trained; 0 where a value is missing."""

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        specification: FrameFeatureSpecification,
        mean: Float[Tensor, " d"],
        deviation: Float[Tensor, " d"],
        *,
        is_sound: bool = False,
    ) -> None:
        super().__init__()
        self.specification, self.is_sound = specification, is_sound
        self.dropout = ElementDropout(specification.dropout)
        self.d_out = len(mean)
        self.register_buffer("mean", mean.float(), persistent=False)  # the run has them in a file of their own
        self.register_buffer("deviation", deviation.float(), persistent=False)

    def forward(self, frames: Frames) -> Float[Tensor, "B T d"]:
        """Return the features of a batch."""
        return self.disturbed(self.normalized(frames.values))

    def normalized(self, values: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        """Return the normalized features of frames, as they are without noise."""
        return ((values - self.mean) / self.deviation).nan_to_num(nan=0.0)

    def disturbed(self, x: Float[Tensor, "B T d"]) -> Float[Tensor, "B T d"]:
        """Normalized features; in training the bands of sounds are moved and filtered, then come noise and dropout."""
        table = self.specification
        if self.training and self.is_sound:
            x = filtered(moved(x, shift=table.shift, stretch=table.stretch), table.filter)
        if self.training and table.noise:
            x = x + table.noise * normal(x.shape, device=x.device)
        features: Tensor = self.dropout(x)
        return features


def moved(x: Float[Tensor, "B T d"], *, shift: float, stretch: float) -> Float[Tensor, "B T d"]:
    """Return feature j interpolated at j·exp(`stretch` u) + `shift` v, with u and v drawn from -1 to 1 per series."""
    if not (shift or stretch):
        return x
    rows, length, d = x.shape
    draws = 2 * uniform((rows, 2), device=x.device) - 1
    places = torch.arange(d, device=x.device) * (stretch * draws[:, :1]).exp() + shift * draws[:, 1:]
    places = places.clamp(0, d - 1).unsqueeze(1)
    low = places.long()
    before, behind = (x.gather(2, at.expand(rows, length, d)) for at in (low, (low + 1).clamp(max=d - 1)))
    return before.lerp(behind, places - low)


def filtered(x: Float[Tensor, "B T d"], deviation: float) -> Float[Tensor, "B T d"]:
    """Return the frames plus a smooth curve over the features per series, through normal draws of this deviation."""
    if not deviation:
        return x
    curves = deviation * normal((len(x), 1, KNOTS), device=x.device)
    return x + F.interpolate(curves, x.shape[2], mode="linear", align_corners=True)


@dataclass(frozen=True)
class FramesSeen(Stored):
    """The shape of the frames of the training data, and the `mean` and `deviation` of each of their features."""

    kind: ClassVar[str] = "frames"
    shape: Shape
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, shape: Shape, rows: FrameRows, *, normalize: bool) -> Self:
        """Return shape and statistics of the training data; without `normalize` the mean is 0 and the deviation 1."""
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
        """Raise ValueError for lists of different lengths, and for a deviation that is none."""
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
        """Return the features of the model."""
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
    labels_class: ClassVar[type[Any]] = Classes

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        return cls(read_frames_seen(run), run.read_json("labels.json", cls.labels_class.from_json))

    def files(self) -> dict[str, Any]:
        return {**super().files(), "labels.json": self.labels.to_json()}


def read_frames_seen(run: RunDirectory) -> FramesSeen:
    """Return the shape and the statistics of the frames of a run.

    Raises:
        RunError: Their file is damaged.
    """
    seen = run.read_json("frames.json", FramesSeen.from_json)
    recipe: Any = run.recipe
    if seen.shape.is_sound and seen.shape.width != recipe.features.bands:
        raise DamagedError(f"{run.path / 'frames.json'}: not the model's: the recipe has {recipe.features.bands} bands")
    return seen
