"""Windows of images: grids of Gaussian filters that read and write a region of an image (Gregor et al. 2015).

An image has H rows and W columns. Its P planes, such as colors, are concatenated along the columns: (B, H, P·W).
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.taps import Tap

INITIAL_COVERAGE, INITIAL_DEVIATION = 0.6, 0.4
"""The fraction of an image's side that a new window covers, and σ of its filters in strides."""


class ImageWindow(NamedTuple):
    """A grid of N × N filters for each image of a batch. Coordinates are in pixels, from 0 at the upper left."""

    center: Float[Tensor, "B 2"]
    """The row and column of the grid's center: g_Y - 1 and g_X - 1, since the paper counts from 1."""
    stride: Float[Tensor, " B"]
    """δ, the distance between neighboring filters."""
    variance: Float[Tensor, " B"]
    """σ² of all filters."""
    intensity: Float[Tensor, " B"]
    """γ, the factor of patches."""
    row_filters: Float[Tensor, "B N H"]
    """F_Y, the filters over the rows of an image."""
    column_filters: Float[Tensor, "B N W"]
    """F_X, the filters over the columns of an image."""

    def read(self, planes: Float[Tensor, "B H PW"]) -> Float[Tensor, "B PNN"]:
        """Return the patches `γ F_Y x F_Xᵀ` of all planes x, flattened."""
        patches = _multiply_columns(self.row_filters @ planes, self.column_filters.transpose(1, 2))
        return patches.flatten(1) * self.intensity.unsqueeze(1)

    def write(self, patches: Float[Tensor, "B N PN"]) -> Float[Tensor, "B H PW"]:
        """Return planes of images: `F_Yᵀ w F_X / γ` for each patch w."""
        patches = patches / self.intensity.view(-1, 1, 1)
        return _multiply_columns(self.row_filters.transpose(1, 2) @ patches, self.column_filters)


class WindowPlacer(nn.Module):
    """A linear map from a vector h to the five parameters of a window on images of `rows` × `columns` pixels (Gregor et
    al. 2015, eqs. 19 to 26):

        (g̃_X, g̃_Y, log σ², log δ̃, log γ) = W h + b
        g_X = (W + 1)/2 · (g̃_X + 1)       g_Y = (H + 1)/2 · (g̃_Y + 1)      δ = (max(W, H) − 1)/(N − 1) · δ̃
        μ_i = g + (i − N/2 − 0.5) δ        F[i, a] = exp(−(a − μ_i)² / 2σ²) / Z_i, with Z_i so that Σ_a F[i, a] = 1

    N is `size`. With initial weights and h = 0, the window is centered, and its filters overlap. Raises ValueError if
    the images have fewer than N rows or columns.
    """

    def __init__(self, d_in: int, *, size: int, rows: int, columns: int) -> None:
        super().__init__()
        if size > min(rows, columns):
            raise ValueError(f"a window of {size} × {size} is larger than images of {rows} × {columns}")
        self.size, self.rows, self.columns = size, rows, columns
        self.parameters_of, self.five = nn.Linear(d_in, 5), Tap()
        self.full_stride = (max(rows, columns) - 1) / max(1, size - 1)
        deviation = INITIAL_DEVIATION * INITIAL_COVERAGE * self.full_stride
        with torch.no_grad():
            self.parameters_of.bias.copy_(torch.tensor([0, 0, 2 * math.log(deviation), math.log(INITIAL_COVERAGE), 0]))

    def forward(self, h: Float[Tensor, "B d_in"]) -> ImageWindow:
        """Return the window of each row."""
        with torch.autocast(h.device.type, enabled=False):  # bfloat16 has 8 significant bits, too few here
            return self.build_window(self.five(self.parameters_of(h.to(self.parameters_of.weight.dtype))))

    def build_window(self, five: Float[Tensor, "B 5"]) -> ImageWindow:
        """Return the window with the `five` parameters on the left side of the first equation."""
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
    """Return N = `size` filters over `length` pixels, at equal distances around `center`. Each filter sums to 1."""
    steps = torch.arange(size, dtype=center.dtype, device=center.device) - (size - 1) / 2
    pixels = torch.arange(length, dtype=center.dtype, device=center.device)
    means = center.unsqueeze(1) + steps * stride.unsqueeze(1)
    return torch.softmax((pixels - means.unsqueeze(2)).square() * (-0.5 / variance).view(-1, 1, 1), dim=2)


def _multiply_columns(planes: Float[Tensor, "B R PS"], filters: Float[Tensor, "B S C"]) -> Float[Tensor, "B R PC"]:
    """Return the product of each of the P planes and the filters."""
    count, rows, _ = planes.shape
    return (planes.reshape(count, -1, filters.shape[1]) @ filters).view(count, rows, -1)
