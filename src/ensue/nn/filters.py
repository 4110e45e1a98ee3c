"""Windows of images: grids of Gaussian filters, by which a part of an image is read and written (Gregor et al. 2015).

An image has H rows of W columns. Its P planes (one for each color, or for two images) are side by side: (B, H, P·W).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.taps import Tap

FIRST_REACH, FIRST_WIDTH = 0.6, 0.4
"""Of a new window: which part of an image it covers, and σ, in strides."""


class ImageWindow(NamedTuple):
    """N × N filters for each row of a batch, and the intensity γ. Places are in pixels, from 0 at the upper left."""

    center: Float[Tensor, "B 2"]
    """The middle of the grid, its row and its column: g_Y and g_X, less one, as the paper counts from 1."""
    stride: Float[Tensor, " B"]
    """δ, the distance of two filters."""
    variance: Float[Tensor, " B"]
    """σ² of all filters."""
    intensity: Float[Tensor, " B"]
    """γ."""
    of_rows: Float[Tensor, "B N H"]
    """F_Y."""
    of_columns: Float[Tensor, "B N W"]
    """F_X."""

    def read(self, planes: Float[Tensor, "B H PW"]) -> Float[Tensor, "B PNN"]:
        """`γ F_Y x F_Xᵀ` of each plane x, flattened."""
        found = _by_columns(self.of_rows @ planes, self.of_columns.transpose(1, 2))
        return found.flatten(1) * self.intensity.unsqueeze(1)

    def write(self, patches: Float[Tensor, "B N PN"]) -> Float[Tensor, "B H PW"]:
        """`F_Yᵀ w F_X / γ` of each patch w: planes of images."""
        patches = patches / self.intensity.view(-1, 1, 1)
        return _by_columns(self.of_rows.transpose(1, 2) @ patches, self.of_columns)


class WindowPlacer(nn.Module):
    """Places a window on images of `rows` × `columns`, by five numbers that are linear in a vector (Gregor et al. 2015,
    eqs. 19 to 26):

        (g̃_X, g̃_Y, log σ², log δ̃, log γ) = W h + b
        g_X = (W + 1)/2 · (g̃_X + 1)       g_Y = (H + 1)/2 · (g̃_Y + 1)      δ = (max(W, H) − 1)/(N − 1) · δ̃
        μ_i = g + (i − N/2 − 0.5) δ        F[i, a] = exp(−(a − μ_i)² / 2σ²) / Z_i, with Z_i so that Σ_a F[i, a] = 1

    A new window is in the middle, and its filters overlap. Raises ValueError for one that is larger than the images.
    """

    def __init__(self, d_in: int, *, size: int, rows: int, columns: int) -> None:
        super().__init__()
        if size > min(rows, columns):
            raise ValueError(f"a window of {size} × {size} is larger than images of {rows} × {columns}")
        self.size, self.rows, self.columns = size, rows, columns
        self.parameters_of, self.five = nn.Linear(d_in, 5), Tap()
        self.full_stride = (max(rows, columns) - 1) / max(1, size - 1)
        deviation = FIRST_WIDTH * FIRST_REACH * self.full_stride
        with torch.no_grad():
            self.parameters_of.bias.copy_(torch.tensor([0, 0, 2 * math.log(deviation), math.log(FIRST_REACH), 0]))

    def forward(self, h: Float[Tensor, "B d_in"]) -> ImageWindow:
        """The window of each row."""
        with torch.autocast(h.device.type, enabled=False):  # places need more than the 8 bits of bfloat16
            return self.placed(self.five(self.parameters_of(h.to(self.parameters_of.weight.dtype))))

    def placed(self, five: Float[Tensor, "B 5"]) -> ImageWindow:
        """The window that five numbers place."""
        x, y, log_variance, log_stride, log_intensity = five.unbind(1)
        center = torch.stack([(self.rows + 1) / 2 * (y + 1) - 1, (self.columns + 1) / 2 * (x + 1) - 1], 1)
        stride, variance = self.full_stride * log_stride.exp(), log_variance.exp()
        return ImageWindow(
            center, stride, variance, log_intensity.exp(),
            filters(center[:, 0], stride, variance, size=self.size, length=self.rows),
            filters(center[:, 1], stride, variance, size=self.size, length=self.columns),
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"size={self.size}, rows={self.rows}, columns={self.columns}"


def filters(
    center: Float[Tensor, " B"], stride: Float[Tensor, " B"], variance: Float[Tensor, " B"], *, size: int, length: int
) -> Float[Tensor, "B N length"]:
    """N = `size` filters over `length` pixels, the grid's middle at `center`. Each sums to 1."""
    steps = torch.arange(size, dtype=center.dtype, device=center.device) - (size - 1) / 2
    pixels = torch.arange(length, dtype=center.dtype, device=center.device)
    means = center.unsqueeze(1) + steps * stride.unsqueeze(1)
    distances = pixels - means.unsqueeze(2)
    return torch.softmax(distances.square() * (-0.5 / variance).view(-1, 1, 1), dim=2)


def _by_columns(planes: Float[Tensor, "B R PS"], filters: Float[Tensor, "B S C"]) -> Float[Tensor, "B R PC"]:
    """Each plane, of S columns, times the filters."""
    count, rows, _ = planes.shape
    return (planes.reshape(count, -1, filters.shape[1]) @ filters).view(count, rows, -1)
