"""Images as vectors: of a grid of places by convolutions, and of glimpses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

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
        self.grid: tuple[int, int] = -(-rows // 2**halvings), -(-(width // colors) // 2**halvings)
        self.d_out = channels[-1]
        self.convolutions = nn.ModuleList(
            _for_rectifier(nn.Conv2d(*sizes, 3, padding=1)) for sizes in pairwise([colors, *channels])
        )
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


def _for_rectifier(layer: nn.Conv2d | nn.Linear) -> nn.Conv2d | nn.Linear:
    """The layer with weights whose outputs are as large as its inputs (He et al. 2015), and a bias of 0."""
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


FARTHEST = 1e6
"""Beyond this many pixels a place is as good as there, outside of any image."""


class Glimpses(nn.Module):
    """Patches (B, M, scales · C, size, size) of images (B, C, H, W) at places (B, M, 2).

    A place is (row, column), measured from the middle of the image in halves of its longer side. Patch k, from 0, is
    around it with (size · 2ᵏ)² pixels, of which it has the means of (2ᵏ)² each. Patches begin at whole pixels; outside
    of the image is 0. No gradient goes to the places.
    """

    def __init__(self, size: int, scales: int) -> None:
        super().__init__()
        self.size, self.scales = size, scales

    @property
    def reach(self) -> int:
        """The side of the largest patch, in pixels of the image."""
        return self.size << (self.scales - 1)

    def forward(self, images: Tensor, places: Tensor) -> Float[Tensor, "B M channels size size"]:
        """The patches. Raises ValueError for wrong sizes, TypeError for a wrong type."""
        expect("Glimpses", "images", images, ("B", "C", "H", "W"))
        expect("Glimpses", "places", places, (len(images), "M", 2), like=images)
        whole = self._around(images, places)
        patches = []
        for scale in range(self.scales):
            side, margin = self.size << scale, (self.reach - (self.size << scale)) // 2
            part = whole[:, :, margin : margin + side, margin : margin + side]
            patches.append(F.avg_pool2d(part, 1 << scale) if scale else part)
        found = torch.cat(patches, 1)
        return found.view(*places.shape[:2], *found.shape[1:])

    def _around(self, images: Tensor, places: Tensor) -> Tensor:
        """The largest patches (B · M, C, reach, reach), unscaled."""
        (rows, inside_rows), (columns, inside_columns) = (
            self._pixels(places[..., axis], images.shape[2 + axis], max(images.shape[2:])) for axis in (0, 1)
        )
        number = torch.arange(len(images), device=images.device).repeat_interleave(places.shape[1])
        found = images.permute(0, 2, 3, 1)[number[:, None, None], rows[:, :, None], columns[:, None, :]]
        inside = inside_rows[:, :, None] & inside_columns[:, None, :]
        return (found * inside.unsqueeze(-1)).permute(0, 3, 1, 2)

    def _pixels(self, places: Tensor, count: int, longer: int) -> tuple[Tensor, Tensor]:
        """The numbers (B · M, reach) of the rows or columns around places (B, M), and which are in the image."""
        middle = (count + places.detach().flatten().double() * longer) / 2
        first = (middle - self.reach / 2).clamp(-FARTHEST, FARTHEST).round().long()
        pixels = first[:, None] + torch.arange(self.reach, device=places.device)
        return pixels.clamp(0, count - 1), (pixels >= 0) & (pixels < count)

    def extra_repr(self) -> str:
        return f"size={self.size}, scales={self.scales}"


class ImageVector(nn.Module):
    """Images (N, C, H, W) as vectors (N, d_out): convolutions of 3 × 3 with the maxima of 2 × 2, then a layer of ReLUs.

    There is a convolution for each number of `channels`; an image of one row or column is not made smaller.
    """

    def __init__(self, d_in: int, height: int, width: int, channels: tuple[int, ...], d_out: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for count in channels:
            pooled = (min(2, height), min(2, width))
            layers += [nn.Conv2d(d_in, count, 3, padding=1), nn.MaxPool2d(pooled), nn.ReLU()]
            d_in, height, width = count, height // pooled[0], width // pooled[1]
        self.layers = nn.Sequential(
            *layers, nn.Flatten(), nn.Linear(d_in * height * width, d_out), nn.LayerNorm(d_out), nn.ReLU()
        )
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                _for_rectifier(layer)

    def forward(self, images: Float[Tensor, "N C H W"]) -> Float[Tensor, "N d_out"]:
        """The vectors."""
        found: Tensor = self.layers(images)
        return found


class GlimpseVector(nn.Module):
    """The content of a glimpse times its place: g = G_image(x) ⊙ G_place(l) (Ba, Mnih & Kavukcuoglu 2015)."""

    def __init__(self, d_in: int, size: int, channels: tuple[int, ...], d_out: int) -> None:
        super().__init__()
        self.image, self.place = ImageVector(d_in, size, size, channels, d_out), nn.Linear(2, d_out)
        nn.init.ones_(self.place.bias)

    def forward(self, patches: Float[Tensor, "N C n n"], places: Float[Tensor, "N 2"]) -> Float[Tensor, "N d_out"]:
        """The vectors of patches at their places."""
        what: Tensor = self.image(patches)
        where: Tensor = F.relu(self.place(places))
        return what * where
