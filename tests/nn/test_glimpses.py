"""Glimpses: patches against a direct indexing, and what they become."""

import numpy as np
import pytest
import torch
from torch import Tensor

from ensue.nn.images import Glimpses, GlimpseVector, ImageVector


def direct(image: Tensor, place: list[float], size: int, scales: int) -> Tensor:
    """The patches (scales · C, size, size) of one image (C, H, W), pixel by pixel."""
    channels, *sides = image.shape
    pixels = {
        (c, y, x): float(image[c, y, x]) for c in range(channels) for y in range(sides[0]) for x in range(sides[1])
    }
    whole = size * 2 ** (scales - 1)
    top, left = (round((side + at * max(sides)) / 2 - whole / 2) for side, at in zip(sides, place, strict=True))
    found = torch.zeros(scales, channels, size, size)
    for scale, c, i, j in np.ndindex(found.shape):
        block, margin = 2**scale, (whole - size * 2**scale) // 2
        y, x = top + margin + i * block, left + margin + j * block
        seen = [pixels.get((c, y + down, x + right), 0.0) for down in range(block) for right in range(block)]
        found[scale, c, i, j] = sum(seen) / block**2
    return found.flatten(0, 1)


@pytest.mark.parametrize(("size", "scales", "channels"), [(2, 3, 1), (3, 2, 2), (5, 1, 1)])
def test_patches_are_those_of_a_direct_indexing(size: int, scales: int, channels: int) -> None:
    images = torch.randn(2, channels, 7, 11)
    places = torch.tensor([[[0.0, 0.0], [-0.6, 1.0], [0.31, -0.97]], [[0.2, 0.9], [5.0, 0.0], [-1e30, 1e30]]])
    found = Glimpses(size, scales)(images, places)
    assert found.shape == (2, 3, scales * channels, size, size)
    for number in range(2):
        for way in range(3):
            at = places[number, way].clamp(-9, 9).tolist()
            torch.testing.assert_close(found[number, way], direct(images[number], at, size, scales))
    assert not found[1, 1:].any()


def test_no_gradient_goes_to_places() -> None:
    images, places = torch.ones(1, 1, 4, 4, requires_grad=True), torch.zeros(1, 1, 2, requires_grad=True)
    Glimpses(2, 1)(images, places).sum().backward()
    assert places.grad is None
    assert images.grad is not None
    assert images.grad.sum() == 4


def test_image_and_place_are_multiplied() -> None:
    vector = GlimpseVector(1, 4, (2,), 6)
    patches, places = torch.rand(3, 1, 4, 4), torch.randn(3, 2)
    expected = vector.image(patches) * vector.place(places).relu()
    torch.testing.assert_close(vector(patches, places), expected)


@pytest.mark.parametrize(("height", "width"), [(1, 9), (5, 2), (16, 16)])
def test_any_size_becomes_a_vector(height: int, width: int) -> None:
    found = ImageVector(2, height, width, (3, 4, 5), 6)(torch.rand(2, 2, height, width))
    assert found.shape == (2, 6)
    assert found.isfinite().all()


@pytest.mark.parametrize(("images", "places", "message"), [
    (torch.zeros(2, 1, 4, 4), torch.zeros(3, 1, 2), "places of"),
    (torch.zeros(2, 4, 4), torch.zeros(2, 1, 2), "images of"),
    (torch.zeros(2, 1, 4, 4), torch.zeros(2, 1, 3), "places of"),
])  # fmt: skip
def test_wrong_sizes_are_one_line(images: Tensor, places: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Glimpses(2, 1)(images, places)
