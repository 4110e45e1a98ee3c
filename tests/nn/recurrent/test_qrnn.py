"""The quasi-recurrent network against torch's convolution and a pooling loop in numpy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ensue.nn.recurrent.qrnn import QRNN, QRNNState
from ensue.nn.taps import watch

D_IN, D = 3, 5
same = torch.testing.assert_close


def build(size: int, *, d: int = D) -> QRNN:
    torch.manual_seed(0)
    layer = QRNN(D_IN, d, size=size).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def by_convolution(layer: QRNN, x: Tensor) -> tuple[Tensor, Tensor]:
    """h and c of all positions; zeros stand before the first."""
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
def test_against_a_convolution(size: int, B: int, T: int) -> None:
    layer, x = build(size), torch.randn(B, T, D_IN, dtype=torch.float64)
    y, final = layer(x)
    expected, cells = by_convolution(layer, x)
    same(y, expected)
    same(final.c, cells[:, -1])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("d", [1, 7])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_ragged_rows_are_the_fold(size: int, d: int) -> None:
    """From a state, with NaN at padding: real outputs, final state and every gradient."""
    layer = build(size, d=d)
    mask = torch.arange(40) < torch.tensor([40, 0, 1, 23]).unsqueeze(1)
    real = mask.unsqueeze(-1)
    x = torch.randn(4, 40, D_IN, dtype=torch.float64).masked_fill(~real, torch.nan).requires_grad_()
    leaves = [torch.randn(4, *shape, dtype=torch.float64).requires_grad_() for shape in ((d,), (size - 1, D_IN))]
    found = []
    for execution in (layer, layer.fold):
        y, final = execution(x, QRNNState(*leaves), mask=mask)
        results = [y.masked_fill(~real, 0.0), *final]
        generator = torch.Generator().manual_seed(1)
        total = sum((torch.randn(r.shape, dtype=r.dtype, generator=generator) * r).sum() for r in results)
        found.append([*results, *torch.autograd.grad(total, [x, *leaves, *layer.parameters()])])
    same(*found)


def test_a_row_keeps_its_own_last_inputs() -> None:
    """Those before the beginning are zeros."""
    layer, x = build(3), torch.randn(3, 4, D_IN, dtype=torch.float64)
    mask = torch.arange(4) < torch.tensor([4, 1, 0]).unsqueeze(1)
    _, final = layer(x, mask=mask)
    nothing = torch.zeros(D_IN, dtype=torch.float64)
    rows = [[x[0, 2], x[0, 3]], [nothing, x[1, 0]], [nothing, nothing]]
    same(final.last, torch.stack([torch.stack(row) for row in rows]))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3])
def test_gradcheck(size: int) -> None:
    layer = build(size)
    names, values = zip(*layer.named_parameters(), strict=True)

    def run(x: Tensor, c: Tensor, last: Tensor, *parameters: Tensor) -> Tensor:
        arguments = (x, QRNNState(c, last))
        y, _ = torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), arguments)
        return y

    shapes = ((2, 4, D_IN), (2, D), (2, size - 1, D_IN))
    given = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    assert torch.autograd.gradcheck(run, (*given, *values))


def test_nothing_to_read_leaves_the_state() -> None:
    layer = build(2)
    state = QRNNState(torch.randn(2, D, dtype=torch.float64), torch.randn(2, 1, D_IN, dtype=torch.float64))
    y, final = layer(torch.zeros(2, 0, D_IN, dtype=torch.float64), state)
    assert y.shape == (2, 0, D)
    same(list(final), list(state), rtol=0, atol=0)


def test_watched_it_goes_step_by_step() -> None:
    layer, x = build(2), torch.randn(2, 6, D_IN, dtype=torch.float64)
    y, _ = layer(x)
    with watch(layer) as seen:
        y_watched, _ = layer(x)
    same(y_watched, y)
    names = ["gates.candidate", "gates.forget", "gates.output", "hidden", "cell"]
    assert list(seen) == [f"pooling.{name}" for name in names]
    assert all(len(values) == 6 and values[0].shape == (2, D) for values in seen.values())


def test_a_state_does_not_keep_the_sequence() -> None:
    _, final = build(2)(torch.randn(2, 50, D_IN, dtype=torch.float64))
    assert [leaf.untyped_storage().nbytes() for leaf in final] == [2 * D * 8, 2 * D_IN * 8]


def test_a_window_has_a_position() -> None:
    with pytest.raises(ValueError, match="at least one"):
        QRNN(D_IN, D, size=0)
