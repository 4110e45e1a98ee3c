"""The grid of an image equals direct sums."""

import pytest
import torch

from ensue.nn import ImageGrid


def test_a_grid_equals_convolution_maximum_and_position_embedding() -> None:
    torch.manual_seed(0)
    grid = ImageGrid(5, 3 * 2, colors=2, channels=(3,), halvings=1).double()
    images = torch.randn(2, 5, 6).double()
    cells = grid(images)
    assert grid.grid == (3, 2)
    assert cells.shape == (2, 6, 3)

    convolution = grid.convolutions[0]
    pixels = images.view(2, 5, 3, 2)  # rows, columns, colors
    for n in range(2):
        for row in range(3):
            for column in range(2):
                inside = []
                for y in (2 * row, 2 * row + 1):
                    for x in (2 * column, 2 * column + 1):
                        if y >= 5 or x >= 3:
                            continue
                        total = convolution.bias.clone()
                        for dy in (-1, 0, 1):
                            for dx in (-1, 0, 1):
                                if 0 <= y + dy < 5 and 0 <= x + dx < 3:
                                    total += convolution.weight[:, :, dy + 1, dx + 1] @ pixels[n, y + dy, x + dx]
                        inside.append(total.relu())
                vector = torch.stack(inside).max(0).values
                expected = grid.norm(vector) + grid.of_row[row, 0] + grid.of_column[column]
                torch.testing.assert_close(cells[n, 2 * row + column], expected)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of 7 numbers cannot be divided into pixels of 3 colors"):
        ImageGrid(5, 7, colors=3)
    with pytest.raises(ValueError, match="expected at least 1 channel, and 0 to 2 halvings; found 2 and 4"):
        ImageGrid(5, 7, channels=(2, 3))
    with pytest.raises(ValueError, match=r"ImageGrid.forward expects images of \(B, 5, 7\), found \(1, 5, 8\)"):
        ImageGrid(5, 7, channels=(2,), halvings=0)(torch.zeros(1, 5, 8))
