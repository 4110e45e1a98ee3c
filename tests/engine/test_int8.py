"""Products in int8: the kernel equals integers of numpy, and linear maps and recurrent layers use it."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ensue.engine import explain, has_int8, int8_linear
from ensue.engine.products import ProductKernels, products
from ensue.models.modules import put_in_precision
from ensue.nn import LSTM, SequenceLayer
from ensue.nn.layer import Recurrent
from ensue.testing.laws import MASK, inputs, mask_outputs
from laws.table import SUBJECTS
from training.tiny import needs_int8

pytestmark = [needs_int8, pytest.mark.usefixtures("kernel")]
DEPTH = 4096
"""The number of terms of a sum that share a unit (int8.h)."""
SIZES = [
    (1, 1, 1),
    (5, 3, 9),
    (13, 70, 33),
    (12, 4, 16),
    (97, 515, 31),
    (2, DEPTH, 64),
    (3, DEPTH + 1, 33),
    (7, 9001, 5),
]
RECURRENT = [subject for subject in SUBJECTS if isinstance(subject.build(), Recurrent)]
EXACT = ("rule of", "clockwork of", "input feeding", "attention before", "hard attention before")
"""Prefixes of the names of layers without matrices, or whose loop does not use this kernel."""


@pytest.fixture(scope="module")
def kernel() -> ProductKernels:
    """Return the kernel; skip if the compiler's target (test_processors.py) lacks its instruction."""
    kernels = products(torch.float32, "int8")
    if kernels is None:
        pytest.skip("no compiler with this target has vpdpbusd")
    assert has_int8()
    return kernels


def rounded(x: NDArray[np.float32], axis: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return integers of at most 127, and the unit of each row (axis 1) or column (axis 0)."""
    largest = np.abs(x).max(axis, keepdims=True)
    unit = largest / np.float32(127)
    return np.rint(x * (1 / unit)).astype(np.int64), unit.astype(np.float64)


def product(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    total = np.zeros((len(a), b.shape[1]))
    for start in range(0, len(b), DEPTH):
        (left, rows), (right, columns) = rounded(a[:, start : start + DEPTH], 1), rounded(b[start : start + DEPTH], 0)
        total += (left @ right) * rows * columns
    return total


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_equal_integer_products_of_numpy(sizes: tuple[int, int, int], kernel: ProductKernels) -> None:
    """Matrices have both memory orders, and other numbers of a wider output do not change."""
    m, k, n = sizes
    torch.manual_seed(0)
    a, b = torch.randn(m, k), torch.randn(k, n) * torch.rand(n).exp()
    expected = torch.from_numpy(product(a.numpy(), b.numpy()))
    out = torch.empty(m, n)
    for matrix in (b, b.t().contiguous().t()):
        kernel.multiply_rows(a, kernel.packed(matrix, (k, n)), out)
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    if k <= 512:  # `multiply` has shorter blocks
        wide = torch.ones(m, n + 2)
        kernel.multiply(a.t().contiguous().t(), b, wide[:, 1:-1], accumulate=True)
        torch.testing.assert_close(wide[:, 1:-1], out + 1)
        assert bool((wide[:, [0, -1]] == 1).all())


def test_rows_of_zeros_give_zeros_and_nan_gives_nan() -> None:
    x, weight = torch.randn(5, 7), torch.randn(3, 7)
    x[0], x[1, 2], x[2, 3], x[3] = 0, torch.inf, torch.nan, 1e-38
    with torch.no_grad():
        y = int8_linear(torch.nn.Identity(), x, weight, None)
        weight[1, 4] = torch.nan
        other = int8_linear(torch.nn.Identity(), x, weight, None)
    assert y[0].tolist() == y[3].tolist() == [0, 0, 0]
    assert bool(y[1:3].isnan().all())
    assert other.isnan().tolist()[4] == [False, True, False]


def test_int8_linear_is_close_to_the_layer_and_follows_its_weights() -> None:
    torch.manual_seed(0)
    (layer,) = torch.nn.ModuleList([torch.nn.Linear(40, 30)])
    x = torch.randn(4, 9, 40)

    def computed(x: Tensor) -> Tensor:
        return int8_linear(layer, x, layer.weight, layer.bias)

    exact = layer(x)
    assert torch.equal(computed(x), exact)  # with gradients
    with torch.no_grad():
        y = computed(x)
        torch.testing.assert_close(y, exact, rtol=0, atol=0.03)
        assert not torch.equal(y, exact)
        assert torch.equal(computed(x[:, 3:4]), y[:, 3:4])  # rows do not depend on the batch
        assert torch.equal(computed(x.transpose(0, 1)), y.transpose(0, 1))
        layer.weight[3] *= 2
        torch.testing.assert_close(computed(x), layer(x), rtol=0, atol=0.05)
        layer.weight = torch.nn.Parameter(layer.weight.neg().contiguous())
        torch.testing.assert_close(computed(x), layer(x), rtol=0, atol=0.05)
        assert computed(x[:0]).shape == (0, 9, 30)
        assert torch.equal(computed(x.double().float()), int8_linear(copy.deepcopy(layer), x, layer.weight, layer.bias))
        assert torch.equal(
            int8_linear(layer, x.double(), layer.weight.double(), None), F.linear(x.double(), layer.weight.double())
        )
        with pytest.raises(RuntimeError):
            computed(x[..., :-1])


def test_a_processor_without_int8_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model was converted to int8 on another machine."""
    torch.manual_seed(0)
    layer, x = LSTM(9, 11), torch.randn(3, 5, 9)
    with torch.no_grad():
        exact = layer(x)[0]
        put_in_precision(layer, "int8")
        assert not torch.equal(layer(x)[0], exact)
        monkeypatch.setattr("ensue.engine.execution.has_int8", lambda: False)
        assert torch.equal(layer(x)[0], exact)
        assert explain(layer) == "compiled"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("subject", RECURRENT, ids=lambda subject: subject.name)
def test_recurrent_layers_in_int8_are_close_to_float32(subject: object) -> None:
    """Rows do not depend on the batch, and calls with gradients are in float32."""
    layer: SequenceLayer = subject.build().float().eval()  # type: ignore[attr-defined]
    x = inputs(layer).float()
    with torch.no_grad():
        exact = mask_outputs(layer(x, mask=MASK)[0])
        assert put_in_precision(layer, "int8")
        y = mask_outputs(layer(x, mask=MASK)[0])
        torch.testing.assert_close(y, exact, rtol=0.1, atol=0.1 * float(exact.abs().max()))
        torch.testing.assert_close(layer(x[:1], mask=MASK[:1])[0], layer(x, mask=MASK)[0][:1])
    name = subject.name  # type: ignore[attr-defined]
    assert torch.equal(y, exact) == (name == "clockwork" or name.startswith(EXACT))
    torch.testing.assert_close(mask_outputs(layer(x, mask=MASK)[0]), exact)
