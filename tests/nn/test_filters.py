"""Windows of images: filters, reading and writing equal direct sums, and gradients equal finite differences."""

import math

import pytest
import torch
from torch import Tensor

from ensue.extensions.frames.drawing.model import WindowPlacer
from ensue.nn.filters import ImageWindow, filters


def direct(center: float, stride: float, variance: float, size: int, length: int) -> Tensor:
    """Return the filters by the paper's equations, where indices of filters and pixels start at 1."""
    rows = torch.zeros(size, length, dtype=torch.float64)
    for i in range(1, size + 1):
        mean = (center + 1) + (i - size / 2 - 0.5) * stride
        row = [math.exp(-((a - mean) ** 2) / (2 * variance)) for a in range(1, length + 1)]
        rows[i - 1] = torch.tensor(row, dtype=torch.float64) / sum(row)
    return rows


def placer(size: int, rows: int, columns: int) -> WindowPlacer:
    torch.manual_seed(0)
    return WindowPlacer(3, size=size, rows=rows, columns=columns).double()


@pytest.mark.parametrize("size", [1, 2, 5])
def test_filters_equal_the_direct_sums(size: int) -> None:
    center, stride, variance = torch.tensor([[2.5, 9.0], [1.5, 0.4], [0.7, 4.0]], dtype=torch.float64)
    result = filters(center, stride, variance, size=size, length=7)
    for row in range(2):
        expected = direct(float(center[row]), float(stride[row]), float(variance[row]), size, 7)
        torch.testing.assert_close(result[row], expected)


def test_a_window_far_outside_has_filters_that_sum_to_one() -> None:
    result = filters(torch.tensor([-500.0]), torch.tensor([1.0]), torch.tensor([0.01]), size=2, length=4)
    torch.testing.assert_close(result.sum(2), torch.ones(1, 2))


def test_the_window_has_the_position_and_size_of_its_five_parameters() -> None:
    layer = placer(3, 6, 8)
    h = torch.randn(2, 3, dtype=torch.float64)
    window = layer(h)
    x, y, log_variance, log_stride, log_intensity = layer.parameters_of(h).detach().unbind(1)
    for row in range(2):
        center_y, center_x = 3.5 * (float(y[row]) + 1) - 1, 4.5 * (float(x[row]) + 1) - 1
        stride, variance = 7 / 2 * math.exp(log_stride[row]), math.exp(log_variance[row])
        torch.testing.assert_close(window.row_filters[row], direct(center_y, stride, variance, 3, 6))
        torch.testing.assert_close(window.column_filters[row], direct(center_x, stride, variance, 3, 8))
    torch.testing.assert_close(window.intensity, log_intensity.exp())


@torch.no_grad()
@pytest.mark.parametrize("planes", [1, 3])
def test_reading_and_writing_equal_the_direct_sums(planes: int) -> None:
    window: ImageWindow = placer(2, 4, 5)(torch.randn(3, 3, dtype=torch.float64))
    images = torch.rand(3, 4, planes, 5, dtype=torch.float64)
    patches = torch.rand(3, 2, planes, 2, dtype=torch.float64)
    read, written = window.read(images.flatten(2)), window.write(patches.flatten(2))
    assert (read.shape, written.shape) == ((3, 2 * planes * 2), (3, 4, planes * 5))
    f_y, f_x, intensity = window.row_filters, window.column_filters, window.intensity
    for row, plane, i, j in torch.cartesian_prod(*map(torch.arange, (3, planes, 2, 2))).tolist():
        summed = sum(
            float(f_y[row, i, a] * images[row, a, plane, b] * f_x[row, j, b]) for a in range(4) for b in range(5)
        )
        assert float(read.view(3, 2, planes, 2)[row, i, plane, j]) == pytest.approx(float(intensity[row]) * summed)
    for row, plane, a, b in torch.cartesian_prod(*map(torch.arange, (3, planes, 4, 5))).tolist():
        summed = sum(
            float(f_y[row, i, a] * patches[row, i, plane, j] * f_x[row, j, b]) for i in range(2) for j in range(2)
        )
        pixel = float(written.view(3, 4, planes, 5)[row, a, plane, b])
        assert pixel == pytest.approx(summed / float(intensity[row]))


def test_gradients_equal_finite_differences() -> None:
    layer = placer(2, 4, 5)
    h = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    images, patches = torch.rand(2, 4, 5, dtype=torch.float64), torch.rand(2, 2, 2, dtype=torch.float64)

    def both(h: Tensor, images: Tensor, patches: Tensor) -> tuple[Tensor, Tensor]:
        window = layer(h)
        return window.read(images), window.write(patches)

    assert torch.autograd.gradcheck(both, (h, images.requires_grad_(), patches.requires_grad_()))


def test_a_window_larger_than_the_image_is_refused() -> None:
    with pytest.raises(ValueError, match="a window of 6 × 6 is larger than images of 5 × 8"):
        WindowPlacer(3, size=6, rows=5, columns=8)
