"""Glimpses: patches equal direct indexing, and become vectors."""

import numpy as np
import pytest
import torch
from torch import Tensor

from ensue.nn.images import Glimpses, GlimpseVector, ImageVector


def direct(image: Tensor, place: list[float], size: int, scales: int) -> Tensor:
    """Return the patches (scales · C, size, size) of one image (C, H, W), computed pixel by pixel."""
    channels, *sides = image.shape
    pixels = {
        (c, y, x): float(image[c, y, x]) for c in range(channels) for y in range(sides[0]) for x in range(sides[1])
    }
    full_size = size * 2 ** (scales - 1)
    top, left = (round((side + at * max(sides)) / 2 - full_size / 2) for side, at in zip(sides, place, strict=True))
    patches = torch.zeros(scales, channels, size, size)
    for scale, c, i, j in np.ndindex(patches.shape):
        block, margin = 2**scale, (full_size - size * 2**scale) // 2
        y, x = top + margin + i * block, left + margin + j * block
        values = [pixels.get((c, y + down, x + right), 0.0) for down in range(block) for right in range(block)]
        patches[scale, c, i, j] = sum(values) / block**2
    return patches.flatten(0, 1)


@pytest.mark.parametrize(("size", "scales", "channels"), [(2, 3, 1), (3, 2, 2), (5, 1, 1)])
def test_patches_equal_direct_indexing(size: int, scales: int, channels: int) -> None:
    images = torch.randn(2, channels, 7, 11)
    places = torch.tensor([[[0.0, 0.0], [-0.6, 1.0], [0.31, -0.97]], [[0.2, 0.9], [5.0, 0.0], [-1e30, 1e30]]])
    patches = Glimpses(size, scales)(images, places)
    assert patches.shape == (2, 3, scales * channels, size, size)
    for number in range(2):
        for glimpse in range(3):
            at = places[number, glimpse].clamp(-9, 9).tolist()
            torch.testing.assert_close(patches[number, glimpse], direct(images[number], at, size, scales))
    assert not patches[1, 1:].any()


def test_places_have_no_gradient() -> None:
    images, places = torch.ones(1, 1, 4, 4, requires_grad=True), torch.zeros(1, 1, 2, requires_grad=True)
    Glimpses(2, 1)(images, places).sum().backward()
    assert places.grad is None
    assert images.grad is not None
    assert images.grad.sum() == 4


def test_vectors_of_image_and_place_are_multiplied() -> None:
    vector = GlimpseVector(1, 4, (2,), 6)
    patches, places = torch.rand(3, 1, 4, 4), torch.randn(3, 2)
    expected = vector.image(patches) * vector.place(places).relu()
    torch.testing.assert_close(vector(patches, places), expected)


@pytest.mark.parametrize(("height", "width"), [(1, 9), (5, 2), (16, 16)])
def test_images_of_any_size_become_a_vector(height: int, width: int) -> None:
    vector = ImageVector(2, height, width, (3, 4, 5), 6)(torch.rand(2, 2, height, width))
    assert vector.shape == (2, 6)
    assert vector.isfinite().all()


@pytest.mark.parametrize(("images", "places", "message"), [
    (torch.zeros(2, 1, 4, 4), torch.zeros(3, 1, 2), "places of"),
    (torch.zeros(2, 4, 4), torch.zeros(2, 1, 2), "images of"),
    (torch.zeros(2, 1, 4, 4), torch.zeros(2, 1, 3), "places of"),
])  # fmt: skip
def test_wrong_sizes_are_refused(images: Tensor, places: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Glimpses(2, 1)(images, places)
