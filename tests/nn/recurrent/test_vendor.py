"""Ragged rows in torch's fused kernels, padded on a CPU and packed on other devices, equal the fold of `step`."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ensue.nn import GRU, LSTM, Elman, Recurrent
from ensue.nn.recurrent import vendor
from ensue.nn.recurrent.lstm import LSTMState
from ensue.types import State, leaves

# without compiled code these layers use torch's fused kernels
pytestmark = pytest.mark.usefixtures("in_torch_operations")

D_IN, D = 3, 4
LAYERS: dict[str, Callable[[], Recurrent]] = {
    "lstm": lambda: LSTM(D_IN, D),
    "gru": lambda: GRU(D_IN, D),
    "elman tanh": lambda: Elman(D_IN, D),
    "elman relu": lambda: Elman(D_IN, D, activation="relu"),
}


def mask_of(lengths: Sequence[int], length: int | None = None) -> Tensor:
    return torch.arange(max(lengths) if length is None else length) < torch.tensor(lengths).unsqueeze(1)


def as_forward_and_as_fold(make: Callable[[], Recurrent], mask: Tensor) -> list[list[Tensor]]:
    """Return outputs at real positions, final state and gradients of both, with NaN at padding and a random state."""
    torch.manual_seed(0)
    layer = make().double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    B, T = mask.shape
    x = torch.randn(B, T, D_IN, dtype=torch.float64).masked_fill(~mask.unsqueeze(2), torch.nan).requires_grad_()
    empty = layer.init_state(B)
    state = type(empty)(*(torch.randn_like(leaf).requires_grad_() for leaf in leaves(empty)))
    weights = [torch.randn(B, T, D, dtype=torch.float64), *(torch.randn_like(leaf) for leaf in leaves(empty))]
    results_of_both = []
    for execution in (layer, layer.fold):
        y, final = execution(x, state, mask=mask)
        results = [y[mask], *leaves(final)]
        weighted = [results[0] * weights[0][mask], *(a * b for a, b in zip(results[1:], weights[1:], strict=True))]
        total = torch.stack([part.sum() for part in weighted]).sum()
        gradients = torch.autograd.grad(total, [x, *leaves(state), *layer.parameters()])
        results_of_both.append([*results, *gradients])
    return results_of_both


@pytest.mark.sampled(11)
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("lengths", [[3, 5, 1, 5, 2], [0, 4, 0, 1], [2, 2], [0, 0]], ids=str)
@pytest.mark.parametrize("run", [vendor._run_padded, vendor._run_packed], ids=["padded", "packed"])
def test_ragged_rows_equal_the_fold(
    make: Callable[[], Recurrent], run: Callable[..., Any], lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed rows, which other devices use, are tested on a CPU."""
    monkeypatch.setattr(vendor, "_run_padded", run)
    ours, fold = as_forward_and_as_fold(make, mask_of(lengths, 6))
    torch.testing.assert_close(ours, fold)


@given(lengths=st.lists(st.integers(0, 12), min_size=1, max_size=8), name=st.sampled_from(["lstm", "gru"]))
def test_rows_of_any_lengths_equal_the_fold(lengths: list[int], name: str) -> None:
    ours, fold = as_forward_and_as_fold(LAYERS[name], mask_of(lengths, 12))
    torch.testing.assert_close(ours, fold)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_padding_does_not_round_the_final_state(dtype: torch.dtype) -> None:
    """The state is bit-identical with little and much padding, although torch's kernel would round it."""
    torch.manual_seed(0)
    layer, x = LSTM(16, 16), torch.randn(2, 100, 16)
    torch.nn.init.normal_(layer.weight_hidden)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        _, state = layer(x, mask=mask_of([100, 7]))
        _, expected = layer(x[:, :8], mask=mask_of([8, 7]))
    torch.testing.assert_close(state.c[1], expected.c[1], rtol=0, atol=0)
    torch.testing.assert_close(state.h[1], expected.h[1], rtol=0, atol=0)


def test_autocast_is_close_to_float32() -> None:
    torch.manual_seed(0)
    layer, mask = LSTM(16, 16), mask_of([9, 2, 30, 0])
    x = torch.randn(4, 30, 16, requires_grad=True)
    y, state = layer.fold(x, mask=mask)
    with torch.autocast("cpu", torch.bfloat16):
        y_half, state_half = layer(x, mask=mask)
    torch.testing.assert_close(y_half[mask].float(), y[mask], rtol=0, atol=2e-2)
    torch.testing.assert_close(state_half.h.float(), state.h, rtol=0, atol=2e-2)
    torch.testing.assert_close(state_half.c.float(), state.c, rtol=0, atol=5e-2)


@pytest.mark.parametrize("name", LAYERS)
def test_without_bfloat16_support_layers_compute_in_float32(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds under autocast, and for weights in bfloat16, whose results are rounded to bfloat16."""
    monkeypatch.setattr(vendor, "has_bfloat16", lambda: False)
    torch.manual_seed(0)
    layer, mask, x = LAYERS[name]().float(), mask_of([9, 2, 0, 5]), torch.randn(4, 9, D_IN)
    y, state = layer(x, mask=mask)
    with torch.autocast("cpu", torch.bfloat16):
        y_low, final = layer(x, mask=mask)
    torch.testing.assert_close((y_low, *final), (y, *state), rtol=0, atol=0)
    y, _ = layer.bfloat16().float()(x.bfloat16().float(), mask=mask)
    y_low, _ = layer.bfloat16()(x.bfloat16(), mask=mask)
    torch.testing.assert_close(y_low, y.bfloat16(), rtol=0, atol=0)


class LouderLSTM(LSTM):
    """A subclass of LSTM with another step."""

    def step(self, x_t: Tensor, state: State = None) -> tuple[Tensor, LSTMState]:
        h, (_, c) = super().step(x_t, state)
        return 2 * h, LSTMState(2 * h, c)


def test_a_subclass_with_another_step_equals_its_fold() -> None:
    layer, x = LouderLSTM(D_IN, D), torch.randn(2, 5, D_IN)
    torch.testing.assert_close(layer(x)[0], layer.fold(x)[0])
