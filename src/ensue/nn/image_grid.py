"""A small convolutional network: from an image to a grid of vectors, each of which is of one place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, starmap

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.border import expect
from ensue.nn.dropout import ElementDropout


class ImageGrid(nn.Module):
    """The annotation vectors a_1 ... a_L of an image (Xu et al. 2015, section 3.1.1), by a network of our own size.

    An image is (rows, columns · colors), each row of pixels having the colors of a pixel side by side. Each of the
    `channels` is a convolution of 3 × 3 and a rectifier; behind each of the first `halvings` is a maximum over 2 × 2
    pixels. What is left are `grid` = (rows, columns) places, row by row: L vectors of `d_out` features, normalized
    (Ba et al. 2016), plus a learned vector of their row and one of their column, without which equal contents would
    look the same everywhere. Raises `ValueError` for sizes that do not go together.
    """

    def __init__(
        self,
        rows: int,
        width: int,
        *,
        colors: int = 1,
        channels: Sequence[int] = (16, 32, 64, 96),
        halvings: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if width % colors:
            raise ValueError(f"rows of {width:,} numbers are no pixels of {colors:,} colors each")
        if not channels or not 0 <= halvings <= len(channels):
            raise ValueError(f"{halvings} halvings need as many channels; found {len(channels)}")
        self.rows, self.width, self.colors, self.halvings = rows, width, colors, halvings
        self.grid = tuple(-(-size // 2**halvings) for size in (rows, width // colors))
        self.d_out = channels[-1]
        self.convolutions = nn.ModuleList(starmap(_convolution, pairwise([colors, *channels])))
        self.norm = nn.LayerNorm(self.d_out)
        self.of_row = nn.Parameter(torch.randn(self.grid[0], 1, self.d_out))
        self.of_column = nn.Parameter(torch.randn(self.grid[1], self.d_out))
        self.dropout = ElementDropout(dropout)

    def forward(self, images: Float[Tensor, "B rows width"]) -> Float[Tensor, "B L d_out"]:
        """The vectors of all places, row by row."""
        expect("ImageGrid.forward", "images", images, ("B", self.rows, self.width), None, like=self.of_row)
        x = images.view(len(images), self.rows, -1, self.colors).permute(0, 3, 1, 2)
        for number, convolution in enumerate(self.convolutions):
            x = F.relu(convolution(x))
            if number < self.halvings:
                x = F.max_pool2d(x, 2, ceil_mode=True)
        places = self.norm(x.permute(0, 2, 3, 1)) + self.of_row + self.of_column
        annotations: Tensor = self.dropout(places.flatten(1, 2))
        return annotations

    def extra_repr(self) -> str:
        return f"{self.rows} × {self.width // self.colors} pixels of {self.colors} colors, grid={self.grid}"


def _convolution(d_in: int, d_out: int) -> nn.Conv2d:
    """Weights for rectifiers (He et al. 2015), and no bias at first."""
    made = nn.Conv2d(d_in, d_out, 3, padding=1)
    nn.init.kaiming_normal_(made.weight, nonlinearity="relu")
    assert made.bias is not None
    nn.init.zeros_(made.bias)
    return made
