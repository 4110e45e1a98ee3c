"""The pass without gradients reads the current weights, and its plan fits the tensors of each call."""

import gc
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from engine.written_steps import Written
from ensue.engine import CachedWeights, executing
from ensue.engine.execution import _get_runner
from ensue.engine.runner import Runner
from ensue.nn import GRU, LSTM, Elman, MogrifierLSTM, SequenceLayer, border, watch
from ensue.nn.recurrent.lstm import LSTMState
from ensue.types import leaves

B, T, D = 3, 5, 8


def assign(change: Callable[[Tensor], Tensor]) -> Callable[[LSTM], None]:
    def changed(layer: LSTM) -> None:
        layer.weight_hidden.data = change(layer.weight_hidden.data)

    return changed


def tie(layer: LSTM) -> None:
    """Make both matrices views of one memory."""
    both = torch.randn(2, *layer.weight_hidden.shape)
    layer.weight_input.data, layer.weight_hidden.data = both


def swap(layer: LSTM) -> None:
    layer.weight_input.data, layer.weight_hidden.data = layer.weight_hidden.data, layer.weight_input.data


CHANGES: dict[str, Callable[[LSTM], object]] = {
    "in place": lambda layer: layer.weight_hidden.data.mul_(2),
    "other memory": assign(lambda data: data * 2),
    "other strides": assign(lambda data: (data * 2).t().contiguous().t()),
    "every second row": assign(lambda data: torch.randn(2 * len(data), D)[::2]),
    "after an offset": assign(lambda data: torch.randn(1 + len(data), D)[1:]),
    "one memory": tie,
    "swapped": swap,
    "a new parameter": lambda layer: setattr(layer, "bias", nn.Parameter(torch.randn(4 * D))),
    "a computed weight": lambda layer: weight_norm(layer, "weight_hidden"),
}


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_changed_weights_are_read(change: str, is_warm: bool) -> None:
    torch.manual_seed(0)
    layer, x = LSTM(D, D), torch.randn(B, T, D)
    if is_warm:
        layer(x)
    CHANGES[change](layer)
    for _ in range(2):
        (y, state), (expected, last) = layer(x), layer.fold(x)
        torch.testing.assert_close((y, *state), (expected, *last))
        layer.weight_input.data = 2 * layer.weight_input.data


@pytest.mark.parametrize("layer_class", [LSTM, GRU])
@torch.no_grad()
def test_results_share_no_memory(layer_class: type[SequenceLayer]) -> None:
    """Neither with each other nor with the given state, for any sizes and with padding, in one thread and in two."""
    torch.manual_seed(0)
    layer = layer_class(D, 16)
    for batch, positions in ((1, 1), (1, 9), (2, 1), (5, 3), (3, 5)):
        x, mask = (
            torch.randn(batch, positions, D),
            torch.arange(positions) < torch.randint(0, positions + 1, (batch, 1)),
        )
        for rows in (None, mask):
            _, state = layer(x)
            before = [leaf.clone() for leaf in ([state] if isinstance(state, Tensor) else state)]
            results = layer(x, state, mask=rows)
            with executing("fold"):
                torch.testing.assert_close(results, layer(x, state, mask=rows))
            leaves = [results[0], *([results[1]] if isinstance(state, Tensor) else results[1])]
            assert len({leaf.untyped_storage().data_ptr() for leaf in leaves}) == len(leaves)
            assert all(map(torch.equal, before, [state] if isinstance(state, Tensor) else state))


def zeros_twice(batch: int) -> LSTMState:
    zeros = torch.zeros(batch, 16)
    return LSTMState(zeros, zeros)


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def state_of(batch: int, make: Callable[[int, int], Tensor] = randn) -> LSTMState:
    return LSTMState(make(batch, 16), make(batch, 16) / 2)


def with_cached_weights(layer: LSTM, sizes: tuple[int, int] = (3, 5)) -> Any:
    with CachedWeights().used():
        layer(randn(2, 3, D))
        layer(randn(*sizes, D))
        return layer(randn(*sizes, D))


def autocast(layer: LSTM) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return layer(randn(3, 5, D))


def with_gradients(layer: LSTM) -> Any:
    with torch.enable_grad():
        return layer(randn(3, 5, D))


def in_inference_mode(layer: LSTM) -> Any:
    with torch.inference_mode():
        return layer(randn(3, 5, D))


def with_hook(layer: LSTM) -> Any:
    handle = layer.gates.forget.register_forward_hook(lambda _, args, output: output * 0)
    results = layer(randn(3, 5, D))
    handle.remove()
    return results


def in_other_threads(layer: SequenceLayer, x: Tensor | None = None) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(3 - min(before, 2))
    try:
        return layer(randn(3, 5, D) if x is None else x)
    finally:
        torch.set_num_threads(before)


def double(layer: LSTM) -> Any:
    results = layer.double()(randn(3, 5, D).double())
    layer.float()
    return results


def transposed(layer: LSTM, sizes: tuple[int, int] = (3, 5)) -> Any:
    """Call the layer once with a weight of other strides."""
    before = layer.weight_hidden.data
    layer.weight_hidden.data = before.t().contiguous().t()
    results = layer(randn(*sizes, D))
    layer.weight_hidden.data = before
    return results


def masked(lengths: list[int], layer: LSTM) -> Any:
    return layer(randn(3, 5, D), state_of(3), mask=torch.arange(5) < torch.tensor(lengths).unsqueeze(1))


CALLS: dict[str, Callable[[LSTM], Any]] = {
    "as it is": lambda layer: layer(randn(3, 5, D)),
    "rows and positions exchanged": lambda layer: layer(randn(5, 3, D)),
    "as many numbers in one row": lambda layer: layer(randn(1, 15, D)),
    "as many numbers in one position": lambda layer: layer(randn(15, 1, D)),
    "one row with gaps": lambda layer: layer(randn(1, 15, 2 * D)[:, :, :D]),
    "one row, each feature far from the next": lambda layer: layer(randn(1, D, 15).transpose(1, 2)),
    "one tensor as both states": lambda layer: layer(randn(3, 5, D), zeros_twice(3)),
    "two states": lambda layer: layer(randn(3, 5, D), state_of(3)),
    "transposed states": lambda layer: layer(randn(3, 5, D), state_of(3, lambda n, d: randn(d, n).t())),
    "states in rows of more": lambda layer: layer(randn(3, 5, D), state_of(3, lambda n, d: randn(n, 3 * d)[:, :d])),
    "padding": partial(masked, [5, 2, 0]), "no row to the end": partial(masked, [3, 3, 1]),
    "as many positions of other rows": partial(masked, [4, 2, 1]),
    "cached weights": with_cached_weights, "autocast": autocast, "gradients": with_gradients,
    "inference mode": in_inference_mode,
    "a hook": with_hook, "another number of threads": in_other_threads, "float64": double,
    "a transposed weight": transposed, "one position": lambda layer: layer(randn(1, 1, D)),
    "one position, cached weights": partial(with_cached_weights, sizes=(1, 1)),
    "one position, a transposed weight": partial(transposed, sizes=(1, 1)),
}  # fmt: skip


@torch.no_grad()
def test_each_call_has_the_results_of_its_first() -> None:
    """The results of a call equal those of a layer without plans, after any other calls."""
    torch.manual_seed(0)
    layer = LSTM(D, 16)
    expected = {name: [*leaves(call(deepcopy(layer)))] for name, call in CALLS.items()}
    with executing("fold"):
        for name, call in CALLS.items():
            tolerance = 0.1 if name == "autocast" else 1e-5
            torch.testing.assert_close([*leaves(call(layer))], expected[name], rtol=tolerance, atol=tolerance)
    order = [*CALLS] * 4
    random.Random(0).shuffle(order)
    for name in order:
        assert all(map(torch.equal, leaves(CALLS[name](layer)), expected[name])), name


MISFITS: dict[str, Callable[[Tensor], Tensor]] = {
    "one row less": lambda data: data[:-1],
    "one feature less": lambda data: data[..., :-1],
    "float64": Tensor.double,
}


@pytest.mark.parametrize("change", MISFITS)
@pytest.mark.parametrize("name", ["weight_input", "weight_hidden", "bias"])
@torch.no_grad()
def test_weights_that_fit_no_plan_are_refused(name: str, change: str) -> None:
    layer, x = LSTM(D, 16), torch.randn(2, 3, D)
    layer(x)
    setattr(layer, name, nn.Parameter(MISFITS[change](getattr(layer, name).data)))
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        layer(x)


@torch.no_grad()
def test_a_computed_weight_of_another_size_is_refused() -> None:
    """The size depends on the values of a mask, not on the sizes of the parameters."""
    layer = Written(lambda layer, x, a, b: (x @ layer.W[layer.rows] + a, a, b))
    d = layer.d_in
    layer.W, layer.rows = nn.Parameter(torch.randn(d + 2, d, dtype=torch.float64)), torch.arange(d + 2) < d
    x = torch.randn(2, 3, d, dtype=torch.float64)
    torch.testing.assert_close(layer(x), layer.fold(x))
    layer.rows[0] = False
    with pytest.raises((ValueError, RuntimeError)):
        layer(x)
    layer.rows[d] = True
    torch.testing.assert_close(layer(x), layer.fold(x))


@torch.no_grad()
def test_threads_share_plans_and_no_memory() -> None:
    torch.manual_seed(0)
    layer = LSTM(D, 128)
    inputs = [torch.randn(4, 7, D) for _ in range(64)]
    expected = [layer(x)[0] for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        assert all(map(torch.equal, pool.map(torch.no_grad()(lambda x: layer(x)[0]), inputs * 4), expected * 4))


@pytest.mark.parametrize("layer_class", [LSTM, GRU, Elman])
@torch.no_grad()
def test_a_known_call_computes_no_weight(layer_class: type[SequenceLayer], monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are views of parameters, and a plan knows their offsets from the addresses of the parameters."""
    layer, x = layer_class(D, 16), torch.randn(2, 3, D)
    expected, runner = layer(x)[0], _get_runner(layer)
    assert isinstance(runner, Runner)
    monkeypatch.setattr(runner.trace, "once", None)
    assert torch.equal(layer(x)[0], expected)


SIZES = [(1, 1), (1, 7), (5, 1), (4, 3)]


@pytest.mark.parametrize("layer_class", [LSTM, GRU, Elman])
@torch.no_grad()
def test_only_known_calls_are_not_checked(layer_class: type[SequenceLayer], monkeypatch: pytest.MonkeyPatch) -> None:
    layer, inputs = layer_class(D, 16), [randn(*sizes, D) for sizes in SIZES]
    expected = [layer(x) for x in inputs]
    with monkeypatch.context() as patch:
        patch.setattr(border, "_check", None)
        assert all(map(torch.equal, leaves([layer(x) for x in inputs]), leaves(expected)))
    for misfit in (inputs[0][..., 1:], inputs[0].double(), inputs[0][0], inputs[0].to("meta"), [1.0], None):
        with pytest.raises((ValueError, TypeError), match=r"\.forward expects x"):
            layer(misfit)
    with pytest.raises(TypeError, match=r"\.forward expects state"):
        layer(inputs[0], inputs[0])
    assert layer(inputs[0][:0])[0].shape == (0, 1, 16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 7, 8, 37, 64])
@torch.no_grad()
def test_one_position_reads_weights_that_are_not_packed(width: int, dtype: torch.dtype) -> None:
    """The results equal those of `fold`, also with cached weights, in other threads, and after longer inputs."""
    torch.manual_seed(0)
    for layer in (LSTM(D + 3, width).to(dtype), GRU(D + 3, width).to(dtype), Elman(D + 3, width).to(dtype)):
        x = randn(1, 1, D + 3).to(dtype)
        results = layer(x)
        tolerance = 1e-5 if dtype == torch.float32 else 1e-12
        torch.testing.assert_close([*leaves(results)], [*leaves(layer.fold(x))], rtol=tolerance, atol=tolerance)
        with CachedWeights().used():
            assert all(map(torch.equal, leaves(layer(x)), leaves(results)))
            longer = layer(x.expand(2, 3, -1))
            assert all(map(torch.equal, leaves(layer(x)), leaves(results)))
            assert all(map(torch.equal, leaves(layer(x.expand(2, 3, -1))), leaves(longer)))
        assert all(map(torch.equal, leaves(layer(x.expand(2, 3, -1))), leaves(longer)))
        assert all(map(torch.equal, leaves(in_other_threads(layer, x)), leaves(results)))


class LearnedStart(LSTM):
    """An LSTM with an initial state that is computed from parameters; while they are zero, it is zero."""

    def __init__(self, start: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__(D, 16)
        self.start, self.first = start, nn.Parameter(torch.zeros(16))

    def init_state(self, batch_size: int, memory: object = None) -> LSTMState:
        zeros = self.weight_hidden.new_zeros(batch_size, self.d_out)
        return LSTMState(self.start(self, zeros), zeros)


STARTS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "a parameter": lambda layer, zeros: layer.first.expand_as(zeros),
    "zeros and a parameter": lambda layer, zeros: zeros + layer.first,
    "zeros, written": lambda layer, zeros: zeros.clone().copy_(layer.first),
}


@pytest.mark.parametrize("start", STARTS)
@torch.no_grad()
def test_initial_states_that_are_learned_are_read(start: str) -> None:
    layer, x = LearnedStart(STARTS[start]), randn(1, 2, D)
    for _ in range(3):
        torch.testing.assert_close(layer(x), layer.fold(x))
        layer.first.data += 1


class Doubled(Elman):
    def forward(self, x: Any, state: Any = None, *, mask: Any = None) -> Any:
        y, state = super().forward(x, state, mask=mask)
        return 2 * y, state


@torch.no_grad()
def test_overrides_hooks_and_taps_still_run_at_a_known_call() -> None:
    """A `forward` of a subclass or of an object, a hook, a watched tap."""
    layer, x, seen = Doubled(D, 16), randn(1, 1, D), []
    assert all(torch.equal(layer(x)[0], 2 * layer(x)[1].h.unsqueeze(1)) for _ in range(3))
    layer = Elman(D, 16)
    for _ in range(2):
        before = layer(x)[0]
    with layer.register_forward_hook(lambda *_: seen.append("hook")):
        layer(x)
    with watch(layer, "hidden") as values:
        layer(x)
    inner = layer.forward
    for layer.forward in (lambda x: (2 * inner(x)[0], None),) * 2:  # type: ignore[method-assign,assignment]
        assert torch.equal(layer(x)[0], 2 * before)
    assert (seen, len(values["hidden"])) == (["hook"], 1)


@pytest.mark.parametrize("layer_class", [LSTM, GRU, Elman])
@pytest.mark.parametrize("sizes", [(1, 400), (5, 100), (64, 8), (400, 3)])
@torch.no_grad()
def test_products_of_long_inputs_are_in_chunks(sizes: tuple[int, int], layer_class: type[SequenceLayer]) -> None:
    """The results are those of `fold`, also with padding, cached weights, and two threads, which use no chunks."""
    torch.manual_seed(0)
    layer, x = layer_class(D, 16), randn(*sizes, D)
    mask = torch.arange(sizes[1]) < torch.randint(1, sizes[1] + 1, (sizes[0], 1))
    for rows in (None, mask):
        results = layer(x, mask=rows)
        torch.testing.assert_close(results, layer.fold(x, mask=rows))
        with CachedWeights().used():
            assert all(map(torch.equal, leaves(layer(x, mask=rows)), leaves(results)))
    torch.testing.assert_close(in_other_threads(layer, x), layer(x))


@pytest.mark.parametrize("layer_class", [LSTM, GRU, MogrifierLSTM])
@torch.no_grad()
def test_a_step_is_the_compiled_call_of_one_position(layer_class: type[SequenceLayer]) -> None:
    torch.manual_seed(0)
    layer, x = layer_class(D, D), torch.randn(B, 2, D)
    _, state = layer(x[:, :1])
    for _ in range(2):  # the first call makes the plan
        y_t, after = layer.step(x[:, 1], state)
        y, expected = layer(x[:, 1:], state)
        torch.testing.assert_close((y_t, *after), (y[:, 0], *expected), rtol=0, atol=0)
    with executing("fold"):
        torch.testing.assert_close(layer.step(x[:, 1], state), (y_t, after))


class WithoutGradient(LSTM):
    """An LSTM whose step without gradients is a part of another step."""

    def step(self, x_t: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        with torch.no_grad():
            y_t, state = super().step(x_t, state)
        return 2 * y_t, state


def test_the_step_of_a_base_class_is_not_replaced_by_the_step_of_the_layer() -> None:
    layer, x_t = WithoutGradient(D, D), torch.randn(B, D)
    twice, _ = layer.step(x_t)
    torch.testing.assert_close(twice, 2 * LSTM.step.__wrapped__(layer, x_t)[0])  # type: ignore[attr-defined]


@torch.no_grad()
def test_a_step_that_an_object_overrides_is_not_replaced() -> None:
    layer, x_t = LSTM(D, D), torch.randn(B, D)
    (y_t, _), inner = layer.step(x_t), layer.step
    layer.step = lambda x_t, state=None: (2 * inner(x_t, state)[0], state)  # type: ignore[method-assign]
    for state in (None, layer.init_state(B)) * 2:
        torch.testing.assert_close(layer.step(x_t, state)[0], 2 * y_t)


class FactorsOfRows(LSTM):
    """An LSTM with a factor for each of B rows, which cannot be traced with other rows."""

    factors = torch.arange(B).unsqueeze(1)

    def step(self, x_t: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        y_t, state = super().step(x_t, state)
        return self.factors * y_t, state


@torch.no_grad()
def test_a_step_for_some_number_of_rows_runs_without_a_trace() -> None:
    layer, x = FactorsOfRows(D, D), torch.randn(B, 1, D)
    expected = layer.factors * LSTM.step.__wrapped__(layer, x[:, 0])[0]  # type: ignore[attr-defined]
    torch.testing.assert_close(layer.step(x[:, 0])[0], expected)
    torch.testing.assert_close(layer(x)[0][:, 0], expected)
    with pytest.raises(RuntimeError, match="must match the size"):
        layer.step(x[:1, 0].expand(B + 1, -1))


@torch.no_grad()
def test_the_step_of_sparse_features_is_computed() -> None:
    layer, x_t = LSTM(D, D), torch.eye(B, D)
    torch.testing.assert_close(layer.step(x_t.to_sparse()), layer.step(x_t))


@torch.no_grad()
def test_traced_layers_are_freed() -> None:
    layer = LSTM(D, D)
    layer.step(torch.randn(B, D))
    bias = ref(layer.bias)
    del layer
    gc.collect()
    assert bias() is None
