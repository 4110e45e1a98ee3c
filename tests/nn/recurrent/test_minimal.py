"""minGRU and minLSTM equal numpy: the recurrence in a loop, and the paper's parallel form in logarithms."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.engine import executing
from ensue.nn.recurrent.linear_recurrence import LinearRecurrence, LinearState, MinGRU, MinLSTM, positive_activation
from training.tiny import some_slow

D_IN, D = 3, 5
LAYERS = {"mingru": MinGRU, "minlstm": MinLSTM}
Numbers = NDArray[np.float64]
same = torch.testing.assert_close


@pytest.fixture(autouse=True, params=["by a scan", "by the engine"])
def execution(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every test with the parallel scan and with the compiled engine, if there is a compiler."""
    with executing("plain" if request.param == "by a scan" else "compiled"):
        yield


def build(kind: str, scale: float = 1.0, *, d: int = D) -> LinearRecurrence:
    torch.manual_seed(0)
    layer = LAYERS[kind](D_IN, d).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    return layer


def sigmoid(v: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-v))


def softplus(v: Numbers) -> Numbers:
    return np.logaddexp(0, v)


def preactivations(layer: LinearRecurrence, x: Tensor) -> list[Numbers]:
    W, bias = (parameter.detach().numpy() for parameter in (layer.weight_input, layer.bias))
    return np.split(x.numpy() @ W.T + bias, len(bias) // layer.d_out, axis=-1)


def one_by_one(layer: LinearRecurrence, x: Tensor, h: Numbers) -> Numbers:
    """Return the outputs of the paper's sequential mode."""
    *gates, v_n = preactivations(layer, x)
    n = np.where(v_n >= 0, v_n + 0.5, sigmoid(v_n))
    outputs = []
    for t in range(x.shape[1]):
        if isinstance(layer, MinGRU):
            z = sigmoid(gates[0][:, t])
            h = (1 - z) * h + z * n[:, t]
        else:
            f, i = (sigmoid(v[:, t]) for v in gates)
            h = f / (f + i) * h + i / (f + i) * n[:, t]
        outputs.append(h)
    return np.stack(outputs, axis=1)


def by_logarithms(layer: LinearRecurrence, x: Tensor, h: Numbers) -> Numbers:
    """Return the outputs of the paper's parallel mode, with cumulative sums of log a and cumulative log-sum-exp."""
    *gates, v_n = preactivations(layer, x)
    if isinstance(layer, MinGRU):
        log_a, log_i = -softplus(gates[0]), -softplus(-gates[0])
    else:
        difference = softplus(-gates[0]) - softplus(-gates[1])
        log_a, log_i = -softplus(difference), -softplus(-difference)
    log_n = np.where(v_n >= 0, np.log(np.maximum(v_n, 0) + 0.5), -softplus(-v_n))
    with np.errstate(divide="ignore"):
        log_values = np.concatenate((np.log(h)[:, None], log_i + log_n), axis=1)
    sums = np.concatenate((np.zeros_like(h)[:, None], np.cumsum(log_a, axis=1)), axis=1)
    outputs: Numbers = np.exp(sums + np.logaddexp.accumulate(log_values - sums, axis=1))[:, 1:]
    return outputs


@pytest.mark.sampled(3, always="by a scan")
@pytest.mark.parametrize("T", some_slow([1, 2, 31, 64, 200], 1, 31, 200))
@pytest.mark.parametrize("B", some_slow([1, 3], 3))
@pytest.mark.parametrize("kind", LAYERS)
def test_outputs_equal_both_modes_of_the_paper(kind: str, B: int, T: int) -> None:
    layer = build(kind)
    x = torch.randn(B, T, D_IN, dtype=torch.float64)
    for h in (torch.zeros(B, D, dtype=torch.float64), torch.rand(B, D, dtype=torch.float64)):
        y, final = layer(x, LinearState(h))
        same(y, torch.from_numpy(one_by_one(layer, x, h.numpy())))
        same(y, torch.from_numpy(by_logarithms(layer, x, h.numpy())))
        same(final.h, y[:, -1])
    same(layer(x)[0], layer(x, LinearState(torch.zeros(B, D, dtype=torch.float64)))[0])


@pytest.mark.parametrize("d", some_slow([1, 7], 7))
@pytest.mark.parametrize("dtype", some_slow([torch.float64, torch.float32], torch.float64), ids=["float64", "float32"])
@pytest.mark.parametrize("kind", LAYERS)
def test_ragged_rows_equal_the_fold(kind: str, dtype: torch.dtype, d: int) -> None:
    """Padding is NaN. Outputs, final state and all gradients are compared."""
    layer = build(kind, d=d).to(dtype)
    mask = torch.arange(40) < torch.tensor([40, 0, 1, 23]).unsqueeze(1)
    real = mask.unsqueeze(-1)
    x = torch.randn(4, 40, D_IN, dtype=dtype).masked_fill(~real, torch.nan).requires_grad_()
    state = LinearState(torch.randn(4, d, dtype=dtype, requires_grad=True))
    dy, dfinal = torch.randn(4, 40, d, dtype=dtype), torch.randn(4, d, dtype=dtype)
    results = []
    for execution in (layer, layer.fold):
        y, final = execution(x, state, mask=mask)
        y = y.masked_fill(~real, 0.0)
        sources = [x, state.h, *layer.parameters()]
        results.append([y, final.h, *torch.autograd.grad((y * dy).sum() + (final.h * dfinal).sum(), sources)])
    same(*results)


def test_the_positive_activation_has_its_values_and_slopes() -> None:
    """The two halves meet at 1/2 with slopes 1/4 and 1."""
    v = torch.tensor([-3.0, -1e-6, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    g = positive_activation(v)
    same(g, torch.tensor([1 / (1 + np.exp(3.0)), 0.5 - 0.25e-6, 0.5, 2.5], dtype=torch.float64))
    (dg,) = torch.autograd.grad(g.sum(), v)
    same(dg[[1, 3]], torch.tensor([0.25, 1.0], dtype=torch.float64))
    assert dg[2] == 1  # the slope of the half v >= 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_two_closed_gates_of_a_minlstm_keep_their_ratio(dtype: torch.dtype) -> None:
    """f and i vanish in float32, f / (f + i) does not: for v_f and v_i far below zero it is σ(v_f - v_i)."""
    layer = MinLSTM(1, 1).to(dtype)
    with torch.no_grad():
        layer.weight_input.zero_()
        layer.bias.copy_(torch.tensor([-401.0, -400.0, 3.0]))
    y_t, _ = layer.step(torch.zeros(1, 1, dtype=dtype))
    same(y_t, torch.full((1, 1), 3.5 / (1 + np.exp(-1.0)), dtype=dtype))


def test_gates_are_not_rounded_by_autocast() -> None:
    """1 - z is 0.999, which in bfloat16 would be 1."""
    layer = MinGRU(1, 1)
    with torch.no_grad():
        layer.weight_input.zero_()
        layer.bias.copy_(torch.tensor([float(np.log(0.001 / 0.999)), 0.0]))
    state = LinearState(torch.ones(1, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = layer(torch.zeros(1, 1000, 1), state)
    assert y.dtype == torch.float32
    same(y[0, -1, 0].item(), 0.5 + 0.5 * 0.999**1000, rtol=0.05, atol=0)
