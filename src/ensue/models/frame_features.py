"""Real vectors as features: normalized, with noise in training."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.models.frame_specification import FrameFeatureSpecification
from ensue.nn.draws import normal
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


class FrameFeatures(nn.Module):
    """`(x − mean) / deviation` of each feature of a frame, both (d,) and not trained; 0 where a value is missing."""

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, specification: FrameFeatureSpecification, mean: Float[Tensor, " d"], deviation: Float[Tensor, " d"]
    ) -> None:
        super().__init__()
        self.noise, self.dropout, self.d_out = specification.noise, ElementDropout(specification.dropout), len(mean)
        self.register_buffer("mean", mean.float(), persistent=False)  # the run has them in a file of their own
        self.register_buffer("deviation", deviation.float(), persistent=False)

    def forward(self, frames: Frames) -> Float[Tensor, "B T d"]:
        """The features of a batch."""
        return self.disturbed(self.normalized(frames.values))

    def normalized(self, values: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        """The normalized features of frames, as they are without noise."""
        return ((values - self.mean) / self.deviation).nan_to_num(nan=0.0)

    def disturbed(self, x: Float[Tensor, "B T d"]) -> Float[Tensor, "B T d"]:
        """Normalized features, in training with noise and dropout."""
        if self.training and self.noise:
            x = x + self.noise * normal(x.shape, device=x.device)
        features: Tensor = self.dropout(x)
        return features
