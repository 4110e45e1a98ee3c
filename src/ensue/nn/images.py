"""Encoders of images: a convolutional grid of positions, and glimpses."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.border import expect
from ensue.nn.draws import ElementDropout


class ImageGrid(nn.Module):
    """A convolutional network that returns annotation vectors a_1 ... a_L of an image (Xu et al. 2015, section 3.1.1).

    An image is (rows, width), where width = columns · colors, and the colors of a pixel are adjacent. For each number
    in `channels`, there is a 3 × 3 convolution with a ReLU. The first `halvings` convolutions are followed by 2 × 2 max
    pooling. There is one vector for each position of `grid` (rows, columns), row by row. Vectors are normalized (Ba et
    al. 2016), and then learned vectors of the row and the column are added. Raises ValueError for inconsistent sizes.
    """

    def __init__(
        self, rows: int, width: int, *, colors: int = 1, channels: Sequence[int] = (16, 32, 64, 96), halvings: int = 4,
        dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        if width % colors:
            raise ValueError(f"rows of {width:,} numbers cannot be divided into pixels of {colors:,} colors")
        if not channels or not 0 <= halvings <= len(channels):
            expected = f"expected at least 1 channel, and 0 to {len(channels)} halvings"
            raise ValueError(f"{expected}; found {len(channels)} and {halvings}")
        self.rows, self.width, self.colors, self.halvings = rows, width, colors, halvings
        self.grid: tuple[int, int] = -(-rows // 2**halvings), -(-(width // colors) // 2**halvings)
        self.d_out = channels[-1]
        sizes = pairwise([colors, *channels])
        self.convolutions = nn.ModuleList(_init_for_relu(nn.Conv2d(*pair, 3, padding=1)) for pair in sizes)
        self.norm = nn.LayerNorm(self.d_out)
        self.of_row = nn.Parameter(torch.randn(self.grid[0], 1, self.d_out))
        self.of_column = nn.Parameter(torch.randn(self.grid[1], self.d_out))
        self.dropout = ElementDropout(dropout)

    def forward(self, images: Float[Tensor, "B rows width"]) -> Float[Tensor, "B L d_out"]:
        """Return the vectors of all positions, row by row."""
        expect("ImageGrid.forward", "images", images, ("B", self.rows, self.width), None, like=self.of_row)
        x = images.view(len(images), self.rows, -1, self.colors).permute(0, 3, 1, 2)
        for number, convolution in enumerate(self.convolutions):
            x = F.relu(convolution(x))
            if number < self.halvings:
                x = F.max_pool2d(x, 2, ceil_mode=True)
        return self.dropout((self.norm(x.permute(0, 2, 3, 1)) + self.of_row + self.of_column).flatten(1, 2))

    def extra_repr(self) -> str:
        return f"{self.rows} × {self.width // self.colors} pixels of {self.colors} colors, grid={self.grid}"


def _init_for_relu(layer: nn.Conv2d | nn.Linear) -> nn.Conv2d | nn.Linear:
    """Return the layer with weights that preserve the variance before a ReLU (He et al. 2015), and a bias of 0."""
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


MAX_PIXELS = 1e6
"""Coordinates are clamped to ± MAX_PIXELS, which is outside of every image."""


class Glimpses(nn.Module):
    """Patches (B, M, scales · C, size, size) of images (B, C, H, W) at locations `places` (B, M, 2).

    A location is (row, column) relative to the center of the image; 1 is half of the image's longer side. Around it,
    patch k (from 0) has (size · 2ᵏ)² pixels, averaged over blocks of 2ᵏ × 2ᵏ. Patches start at integer pixels, and
    pixels outside of the image are 0. Locations get no gradient.
    """

    def __init__(self, size: int, scales: int) -> None:
        super().__init__()
        self.size, self.scales, self.reach = size, scales, size << (scales - 1)
        """The side of a patch, the number of patches, and the side of the largest patch in pixels of the image."""

    def forward(self, images: Tensor, places: Tensor) -> Float[Tensor, "B M channels size size"]:
        """Return the patches. Raises ValueError for wrong sizes, TypeError for a wrong type."""
        expect("Glimpses", "images", images, ("B", "C", "H", "W"))
        expect("Glimpses", "places", places, (len(images), "M", 2), like=images)
        # the largest patches (B · M, C, reach, reach), not averaged
        (rows, inside_rows), (columns, inside_columns) = (
            self._pixels_around(places[..., axis], images.shape[2 + axis], max(images.shape[2:])) for axis in (0, 1)
        )
        image_indices = torch.arange(len(images), device=images.device).repeat_interleave(places.shape[1])
        pixels = images.permute(0, 2, 3, 1)[image_indices[:, None, None], rows[:, :, None], columns[:, None, :]]
        inside = inside_rows[:, :, None] & inside_columns[:, None, :]
        largest = (pixels * inside.unsqueeze(-1)).permute(0, 3, 1, 2)
        patches = []
        for scale in range(self.scales):
            side, margin = self.size << scale, (self.reach - (self.size << scale)) // 2
            patch = largest[:, :, margin : margin + side, margin : margin + side]
            patches.append(F.avg_pool2d(patch, 1 << scale) if scale else patch)
        channels = torch.cat(patches, 1)
        return channels.view(*places.shape[:2], *channels.shape[1:])

    def _pixels_around(self, places: Tensor, size: int, longer_side: int) -> tuple[Tensor, Tensor]:
        """Return the indices (B · M, reach) of pixels around locations on an axis, and the mask of real pixels."""
        middle = (size + places.detach().flatten().double() * longer_side) / 2
        first = (middle - self.reach / 2).clamp(-MAX_PIXELS, MAX_PIXELS).round().long()
        pixels = first[:, None] + torch.arange(self.reach, device=places.device)
        return pixels.clamp(0, size - 1), (pixels >= 0) & (pixels < size)

    def extra_repr(self) -> str:
        return f"size={self.size}, scales={self.scales}"


class ImageVector(nn.Module):
    """A network from images (N, C, H, W) to vectors (N, d_out): 3 × 3 convolutions, each with 2 × 2 max pooling and
    ReLU, and a linear map with layer normalization and ReLU.

    `channels` are the numbers of filters of the convolutions. A dimension of size 1 is not pooled.
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
                _init_for_relu(layer)

    def forward(self, images: Float[Tensor, "N C H W"]) -> Float[Tensor, "N d_out"]:
        """Return the vectors."""
        return self.layers(images)


class GlimpseVector(nn.Module):
    """A glimpse vector g = G_image(x) ⊙ G_place(l) of content x and location l (Ba, Mnih & Kavukcuoglu 2015)."""

    def __init__(self, d_in: int, size: int, channels: tuple[int, ...], d_out: int) -> None:
        super().__init__()
        self.image, self.place = ImageVector(d_in, size, size, channels, d_out), nn.Linear(2, d_out)
        nn.init.ones_(self.place.bias)

    def forward(self, patches: Float[Tensor, "N C n n"], places: Float[Tensor, "N 2"]) -> Float[Tensor, "N d_out"]:
        """Return the vectors of patches at their locations."""
        content: Tensor = self.image(patches)
        return content * F.relu(self.place(places))
