"""Real vectors as features: normalized, and in training changed, so that a model hears more than there is."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.extensions.frames.models.frame_specification import FrameFeatureSpecification
from ensue.nn.draws import normal, uniform
from ensue.nn.dropout import ElementDropout


class Frames(NamedTuple):
    """A batch of series: `values`, NaN where they are missing, and a mask. It stands where `Words` can stand."""

    values: Float[Tensor, "B T d"]
    mask: Bool[Tensor, "B T"] | None
    subwords: None = None

    def part(self, rows: slice) -> Self:
        """The batch of some of its rows."""
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
        """No frame has a name."""
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
        """The features of a batch."""
        return self.disturbed(self.normalized(frames.values))

    def normalized(self, values: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        """The normalized features of frames, as they are without noise."""
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
    """Feature j of a series, read between others at j·exp(`stretch` u) + `shift` v, with u and v from -1 to 1."""
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
    """All frames of a series plus a curve over the features, through normal numbers of this deviation."""
    if not deviation:
        return x
    curves = deviation * normal((len(x), 1, KNOTS), device=x.device)
    return x + F.interpolate(curves, x.shape[2], mode="linear", align_corners=True)
