"""The quasi-recurrent network equals torch's convolution and a pooling loop in numpy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ensue.nn.recurrent.linear_recurrence import QRNN

D_IN, D = 3, 5
same = torch.testing.assert_close


def build(size: int, *, d: int = D) -> QRNN:
    torch.manual_seed(0)
    layer = QRNN(D_IN, d, size=size).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def by_convolution(layer: QRNN, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return h and c of all positions; zeros precede the first."""
    kernel = layer.pooling.weight_input.view(3 * layer.d_out, layer.size, D_IN).transpose(1, 2)
    v = F.conv1d(F.pad(x.transpose(1, 2), (layer.size - 1, 0)), kernel, layer.pooling.bias).transpose(1, 2)
    v_z, v_f, v_o = np.split(v.detach().numpy(), 3, axis=-1)
    z, f, o = np.tanh(v_z), 1 / (1 + np.exp(-v_f)), 1 / (1 + np.exp(-v_o))
    c, cells = np.zeros_like(z[:, 0]), []
    for t in range(x.shape[1]):
        c = f[:, t] * c + (1 - f[:, t]) * z[:, t]
        cells.append(c)
    return torch.from_numpy(o * np.stack(cells, axis=1)), torch.from_numpy(np.stack(cells, axis=1))


@pytest.mark.sampled(9)
@pytest.mark.parametrize("T", [1, 2, 3, 40])
@pytest.mark.parametrize("B", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_outputs_equal_a_convolution_and_a_loop(size: int, B: int, T: int) -> None:
    layer, x = build(size), torch.randn(B, T, D_IN, dtype=torch.float64)
    y, final = layer(x)
    expected, cells = by_convolution(layer, x)
    same(y, expected)
    same(final.c, cells[:, -1])


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        QRNN(D_IN, D, size=0)


def test_the_state_has_each_rows_last_inputs() -> None:
    """Inputs before the beginning are zeros."""
    layer, x = build(3), torch.randn(3, 4, D_IN, dtype=torch.float64)
    mask = torch.arange(4) < torch.tensor([4, 1, 0]).unsqueeze(1)
    _, final = layer(x, mask=mask)
    nothing = torch.zeros(D_IN, dtype=torch.float64)
    rows = [[x[0, 2], x[0, 3]], [nothing, x[1, 0]], [nothing, nothing]]
    same(final.last, torch.stack([torch.stack(row) for row in rows]))
