"""Windows of images: grids of Gaussian filters that read and write a region of an image (Gregor et al. 2015).

An image has H rows and W columns. Its P planes, such as colors, are concatenated along the columns: (B, H, P·W).
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


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
