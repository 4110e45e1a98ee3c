"""The clockwork network equals the paper's equations for each module, and its fast path equals the fold."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.twins import needs_compiler
from ensue.engine import Execution, executing
from ensue.nn import WeightDrop, watch
from ensue.nn.recurrent.clockwork import Clockwork, ClockworkSchedule, ClockworkState
from nn.recurrent.row_by_row import compare
from training.tiny import some_slow

D_IN, SIZE, B = 3, 2, 4
PERIODS = [(1,), (3,), (1, 2, 4), (1, 3, 6), (2, 4), (1, 7)]


def layer_of(periods: tuple[int, ...], size: int = SIZE) -> Clockwork:
    torch.manual_seed(0)
    layer = Clockwork(D_IN, size * len(periods), periods=periods).double()
    with torch.no_grad():
        for parameter in layer.parameters():  # also the unused blocks
            parameter.normal_(std=size**-0.5)
    return layer


def state_of(layer: Clockwork, clock: list[int]) -> ClockworkState:
    h = torch.randn(B, layer.d_out, dtype=torch.float64, requires_grad=True)
    return ClockworkState(h, torch.tensor(clock))


def masked(lengths: list[int], T: int) -> Tensor:
    return torch.arange(T) < torch.tensor(lengths).unsqueeze(1)


def written_out(layer: Clockwork, x: Tensor, state: ClockworkState, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Return the outputs and the last h by Koutník et al. 2014: which modules are updated at t, and what each reads."""
    count = len(layer.periods)
    W = layer.weight_input.view(count, SIZE, D_IN)
    U = layer.weight_hidden.view(count, SIZE, count, SIZE)
    b = layer.bias.view(count, SIZE)
    y, final = [], []
    for row, length in enumerate(lengths):
        h, outputs = list(state.h[row].view(count, SIZE)), [torch.zeros(layer.d_out, dtype=x.dtype)] * x.shape[1]
        for step in range(length):
            t, before = int(state.clock[row]) + step, list(h)
            for k in range(count):
                if t % layer.periods[k] == 0:
                    inputs = [U[k, :, j] @ before[j] for j in range(count) if layer.periods[j] >= layer.periods[k]]
                    h[k] = torch.tanh(W[k] @ x[row, step] + b[k] + torch.stack(inputs).sum(0))
            outputs[step] = torch.cat(h)
        y.append(torch.stack(outputs))
        final.append(torch.cat(h))
    return torch.stack(y), torch.stack(final)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("clock", [[0] * B, [3, 27, 3, 15], [5, 0, 2, 7]], ids=["new", "agreeing", "apart"])
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("execution", some_slow(["compiled", "plain", "fold"], "compiled", "fold"))
@pytest.mark.parametrize("periods", some_slow(PERIODS, (1, 2, 4)), ids=str)
def test_values_states_and_gradients_equal_the_equations(
    periods: tuple[int, ...], execution: Execution, ragged: bool, clock: list[int]
) -> None:
    T = 9
    layer = layer_of(periods)
    x = torch.randn(B, T, D_IN, dtype=torch.float64, requires_grad=True)
    state = state_of(layer, clock)
    lengths = [7, 0, T, 2] if ragged else [T] * B
    mask = masked(lengths, T)
    with executing(execution):
        y, final = (layer.fold if execution == "fold" else layer)(x, state, mask=mask if ragged else None)
    assert final.clock.tolist() == [start + length for start, length in zip(clock, lengths, strict=True)]
    expected = list(written_out(layer, x, state, lengths))
    compare([y * mask.unsqueeze(-1), final.h], expected, [x, state.h, *layer.parameters()], unused=True)


@given(
    periods=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    size=st.sampled_from([1, 7, 20, 40]),
    lengths=st.lists(st.integers(0, 12), min_size=B, max_size=B),
    padding=st.integers(0, 2),
    start=st.integers(0, 30),
    turns=st.lists(st.integers(0, 2), min_size=B, max_size=B),
)
def test_the_schedule_in_c_equals_the_fold(
    periods: list[int], size: int, lengths: list[int], padding: int, start: int, turns: list[int]
) -> None:
    """The clocks of rows may differ by multiples of the longest period."""
    products = [periods[0]]
    for factor in periods[1:]:
        products.append(products[-1] * (factor + 1))
    layer, T = layer_of(tuple(products), size), max(1, max(lengths) + padding)
    x = torch.randn(B, T, D_IN, dtype=torch.float64, requires_grad=True)
    state = state_of(layer, [start + turn * products[-1] for turn in turns])
    mask = masked(lengths, T)
    y, final = layer(x, state, mask=mask)
    y_fold, final_fold = layer.fold(x, state, mask=mask)
    assert torch.equal(final.clock, final_fold.clock)
    keep = mask.unsqueeze(-1)
    sources = [x, state.h, *layer.parameters()]
    compare([y * keep, final.h], [y_fold * keep, final_fold.h], sources, unused=True)


@needs_compiler
def test_rows_whose_clocks_agree_are_run_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose clocks disagree, and watched layers, are not."""
    layer, x, names = layer_of((1, 2, 4)), torch.randn(B, 9, D_IN, dtype=torch.float64), []
    run = ClockworkSchedule.run

    def counted(turns: ClockworkSchedule, name: str, *arguments: Any, **options: Any) -> None:
        names.append(name)
        run(turns, name, *arguments, **options)

    monkeypatch.setattr(ClockworkSchedule, "run", counted)
    layer(x, state_of(layer, [3, 7, 3, 15]))[0].sum().backward()
    assert names == ["forward", "backward", "matrix_errors"]
    layer(x, state_of(layer, [3, 7, 3, 14]))
    with watch(layer, "hidden") as seen:
        layer(x)
    assert len(names) == 3
    assert len(seen["hidden"]) == 9


@needs_compiler
def test_the_result_does_not_depend_on_the_threads() -> None:
    layer = layer_of((1, 2, 4), 40)
    x = torch.randn(B, 9, D_IN, dtype=torch.float64, requires_grad=True)
    state = state_of(layer, [3, 7, 3, 15])
    results, before = [], torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            y, final = layer(x, state)
            sources = [x, state.h, *layer.parameters()]
            results.append([y, final.h, *torch.autograd.grad(y.square().sum() + final.h.sum(), sources)])
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(*results)


def test_gradients_of_only_the_final_state_equal_those_of_the_fold() -> None:
    layer, x = layer_of((1, 2, 4)), torch.randn(B, 5, D_IN, dtype=torch.float64)
    state = state_of(layer, [1] * B)
    gradient, expected = (torch.autograd.grad(f(x, state)[1].h.sum(), state.h)[0] for f in (layer, layer.fold))
    torch.testing.assert_close(gradient, expected)


def test_other_types_are_run_by_torch_and_other_sizes_are_refused() -> None:
    layer, x = Clockwork(D_IN, 6, periods=(1, 2, 4)), torch.randn(B, 9, D_IN)
    y, _ = layer.bfloat16()(x.bfloat16())
    y_fold, _ = layer.fold(x.bfloat16())
    torch.testing.assert_close(y, y_fold, rtol=0.05, atol=0.05)
    layer = layer.float()
    for wrong in ((x[..., 1:], None), (x, layer.init_state(B - 1))):
        with pytest.raises(ValueError, match=r"Clockwork\.forward expects"):
            layer(*wrong)


@pytest.mark.usefixtures("in_torch_operations")
def test_unused_weights_start_at_zero_and_have_no_gradient() -> None:
    layer = Clockwork(D_IN, 8, periods=(1, 2, 4, 8))
    unused = torch.ones(4, 4).tril(-1).repeat_interleave(2, 0).repeat_interleave(2, 1).bool()
    layer(torch.randn(B, 20, D_IN))[0].square().sum().backward()
    assert layer.weight_hidden.grad is not None
    for weights in (layer.weight_hidden, layer.weight_hidden.grad):
        assert not weights[unused].any()
        assert weights[~unused].all()
    for k in range(4):
        block = layer.weight_hidden[2 * k : 2 * k + 2, 2 * k : 2 * k + 2]
        torch.testing.assert_close(block @ block.T, torch.eye(2))


@pytest.mark.parametrize("execution", ["compiled", "plain"])
def test_weight_drop_replaces_the_weights_of_forward(execution: Execution) -> None:
    layer = layer_of((1, 2, 4))
    x = torch.randn(B, 9, D_IN, dtype=torch.float64)
    with executing(execution):
        y, _ = WeightDrop(layer, 1.0).train()(x)
    with torch.no_grad():
        layer.weight_hidden.zero_()
    torch.testing.assert_close(y, layer(x)[0])


@pytest.mark.parametrize("periods", [(), (0, 1), (-1,), (2, 1), (1, 1), (2, 3)], ids=str)
def test_invalid_periods_are_refused(periods: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="periods must be positive, ascending, and each divide the next; found"):
        Clockwork(D_IN, 12, periods=periods)


def test_units_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(ValueError, match="7 units cannot be divided among 3 periods"):
        Clockwork(D_IN, 7, periods=(1, 2, 4))
