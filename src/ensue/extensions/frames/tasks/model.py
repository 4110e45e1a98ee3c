"""Batches and features of frames, and the files from which models of frames are built: statistics and labels."""

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
from ensue.nn.draws import ElementDropout, normal, uniform
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import DamagedError
from ensue.stored import Bounds, Stored
from ensue.tasks.contract.job import ModelParts
from ensue.text.labels import Classes


class Frames(NamedTuple):
    """A batch of series. It has the attributes of `Positions`, which is a batch of words. Missing values are NaN."""

    values: Float[Tensor, "B T d"]
    mask: Bool[Tensor, "B T"] | None
    subwords: None = None

    def slice_rows(self, rows: slice) -> Self:
        """Return rows of the batch."""
        return self._replace(values=self.values[rows], mask=None if self.mask is None else self.mask[rows])

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of positions, (B, T)."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def num_real(self) -> int:
        """The number of frames without padding."""
        return self.shape[0] * self.shape[1] if self.mask is None else int(self.mask.sum())

    @property
    def keys(self) -> Int[Tensor, "B T"]:
        """Zeros (B, T), since frames have no ids, unlike words."""
        return torch.zeros(self.shape, dtype=torch.int64, device=self.values.device)


NUM_KNOTS = 8
"""The number of evenly spaced knots of a random filter, which is linear between knots."""


class FrameFeatures(nn.Module):
    """A layer that normalizes features, `(x − mean) / deviation`, by constants (d,). Missing values become 0."""

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, specification: FrameFeatureSpecification, mean: Float[Tensor, " d"], deviation: Float[Tensor, " d"], *,
        is_sound: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.specification, self.is_sound = specification, is_sound
        self.dropout = ElementDropout(specification.dropout)
        self.d_out = len(mean)
        self.register_buffer("mean", mean.float(), persistent=False)  # mean and deviation are saved in frames.json
        self.register_buffer("deviation", deviation.float(), persistent=False)

    def forward(self, frames: Frames) -> Float[Tensor, "B T d"]:
        """Return the features of a batch."""
        return self.augmented(self.normalized(frames.values))

    def normalized(self, values: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        """Return the normalized features without noise."""
        return ((values - self.mean) / self.deviation).nan_to_num(nan=0.0)

    def augmented(self, x: Float[Tensor, "B T d"]) -> Float[Tensor, "B T d"]:
        """Return normalized features. In training, add noise, dropout and, for sounds, random changes of the bands."""
        table = self.specification
        if self.training and self.is_sound:
            x = filter_bands(warp_bands(x, shift=table.shift, stretch=table.stretch), table.filter)
        if self.training and table.noise:
            x = x + table.noise * normal(x.shape, device=x.device)
        return self.dropout(x)


def warp_bands(x: Float[Tensor, "B T d"], *, shift: float, stretch: float) -> Float[Tensor, "B T d"]:
    """Return features with the axis of bands stretched and shifted at random, equally for all frames of a series.

    The value of band j is interpolated at j·exp(stretch u) + shift v, with u, v ~ U(-1, 1) for each series.
    """
    if not (shift or stretch):
        return x
    rows, length, d = x.shape
    draws = 2 * uniform((rows, 2), device=x.device) - 1
    bands = torch.arange(d, device=x.device) * (stretch * draws[:, :1]).exp() + shift * draws[:, 1:]
    bands = bands.clamp(0, d - 1).unsqueeze(1)
    low = bands.long()
    lower, upper = (x.gather(2, index.expand(rows, length, d)) for index in (low, (low + 1).clamp(max=d - 1)))
    return lower.lerp(upper, bands - low)


def filter_bands(x: Float[Tensor, "B T d"], deviation: float) -> Float[Tensor, "B T d"]:
    """Return features plus a curve over the bands for each series, linear between knots from N(0, deviation²)."""
    if not deviation:
        return x
    curves = deviation * normal((len(x), 1, NUM_KNOTS), device=x.device)
    return x + F.interpolate(curves, x.shape[2], mode="linear", align_corners=True)


@dataclass(frozen=True)
class FrameStatistics(Stored):
    """The shape of the training data, and the mean and standard deviation of each feature."""

    kind: ClassVar[str] = "frames"
    shape: Shape
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, shape: Shape, rows: FrameRows, *, normalize: bool) -> Self:
        """Return the shape and statistics of the training data. Without `normalize`, means are 0 and deviations 1."""
        if not normalize:
            return cls(shape, (0.0,) * shape.width, (1.0,) * shape.width)
        mean, deviation = moments([rows.values])
        return cls(shape, tuple(mean.tolist()), tuple(deviation.tolist()))

    @classmethod
    def _restored(
        cls, rate: Annotated[float, Bounds(0, math.inf)], is_sound: bool, columns: tuple[str, ...],
        mean: tuple[float, ...], deviation: tuple[float, ...],
    ) -> Self:  # fmt: skip
        """Return the stored values. Raises ValueError for lists of different lengths and deviations of 0 or less."""
        if not mean or len(mean) != len(deviation) or len(columns) not in (0, len(mean)):
            raise ValueError("mean, deviation and columns must have the same length")
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
    """The shape and statistics from which a model of frames is built."""

    statistics: FrameStatistics

    def features(self, recipe: FramesRecipe) -> FrameFeatures:
        """Return the features of the model."""
        data = self.statistics
        mean, deviation = (torch.tensor(row, dtype=torch.float64) for row in (data.mean, data.deviation))
        return FrameFeatures(recipe.features, mean, deviation, is_sound=data.shape.is_sound)

    def files(self) -> dict[str, Any]:
        return {"frames.json": self.statistics.to_json()}

    def python(self, recipe: Any) -> list[str]:
        return ['print(model.predict(model.source("FILE")))']


@dataclass(frozen=True)
class LabeledFrameParts(FrameParts):
    """The shape, statistics and labels from which a model with labels is built."""

    labels: Any
    labels_class: ClassVar[type[Any]] = Classes

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        return cls(read_frame_statistics(run), run.read_json("labels.json", cls.labels_class.from_json))

    def files(self) -> dict[str, Any]:
        return {**super().files(), "labels.json": self.labels.to_json()}

    def commands(self, recipe: Any, path: str) -> list[str]:
        return [f"ensue predict {path} FILE > labeled", f"ensue evaluate {path} FILE --json"]


def read_frame_statistics(run: RunDirectory) -> FrameStatistics:
    """Return the shape and statistics of the training data of a run. Raises DamagedError for a damaged file."""
    statistics = run.read_json("frames.json", FrameStatistics.from_json)
    recipe: Any = run.recipe
    if statistics.shape.is_sound and statistics.shape.width != recipe.features.bands:
        raise DamagedError(f"{run.path / 'frames.json'}: expected {recipe.features.bands} bands, as in the recipe")
    return statistics
