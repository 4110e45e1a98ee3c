"""Layers accept valid arguments and refuse others in one line that names what was expected and found."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.twins import needs_compiler
from ensue import nn as layers
from ensue.engine import executing
from ensue.engine.execution import _arguments, _get_runner, read_parameters
from ensue.engine.runner import Runner, Values
from ensue.engine.storage import Packing, Storage
from ensue.nn.recurrent.lstm import LSTMState
from ensue.types import Memory, Shared, map_state

B, T = 4, 10
ALL_REAL = torch.ones(B, T, dtype=torch.bool)


@pytest.fixture(autouse=True)
def unchecked_types(unchecked_types: None) -> None:
    """Turn off the checks of signatures, which would precede the layers' own checks."""


def x_of(d: int = 8, **options: Any) -> Tensor:
    return torch.zeros(B, T, d, **options)


def with_gaps(*places: tuple[int, int]) -> Tensor:
    mask = ALL_REAL.clone()
    for place in places:
        mask[place] = False
    return mask


lstm, stack = layers.LSTM(8, 16), layers.Stack([layers.LSTM(8, 8), layers.GRU(8, 16)])
attention = layers.MultiHeadAttention(8, num_heads=2)
additive = layers.AdditiveAttention(8, 6)
decoder = layers.Stack([layers.PostNormDecoderBlock(8, num_heads=2, d_feedforward=8)])
of_three = (torch.zeros(3, 5, 8),)
clockwork, both_ways = layers.Clockwork(8, 16, periods=(1, 2)), layers.Bidirectional(lstm, layers.LSTM(8, 16))
WRONG: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (ValueError, "LSTM.forward expects state.h of (4, 16), found (2, 16)", lambda: lstm(x_of(), lstm.init_state(2))),
    (
        TypeError,
        "LSTM.forward expects state.h in torch.float32, found torch.float64",
        lambda: lstm(x_of(), map_state(Tensor.double, lstm.init_state(B))),
    ),
    (ValueError, "LSTM.fold expects mask of (4, 10), found (4, 9)", lambda: lstm.fold(x_of(), mask=ALL_REAL[:, :9])),
    (
        TypeError,
        "LSTM.forward expects mask in torch.bool, found torch.int64",
        lambda: lstm(x_of(), mask=ALL_REAL.long()),
    ),
    (
        ValueError,
        "LSTM.forward expects mask whose real positions come first, found padding before a real position in row 2",
        lambda: lstm(x_of(), mask=with_gaps((2, 3))),
    ),
    (ValueError, "LSTM.forward expects x of (rows, positions, 8), found (4, 10, 9)", lambda: lstm(x_of(9))),
    (ValueError, "LSTM.step expects x of (rows, 8), found (4, 10, 8)", lambda: lstm.step(x_of())),
    (TypeError, "LSTM.forward expects x in torch.float32, found torch.int64", lambda: lstm(x_of(dtype=torch.long))),
    (TypeError, "LSTM.forward expects x on cpu, found meta", lambda: lstm(x_of(device="meta"))),
    (
        TypeError,
        "LSTM.forward expects state.c as a tensor, found None",
        lambda: lstm(x_of(), LSTMState(torch.zeros(B, 16), None)),  # type: ignore[arg-type]
    ),
    (TypeError, "Stack.forward expects state as a tuple of 2, found tuple", lambda: stack(x_of(), ())),
    (
        ValueError,
        "Stack.forward expects state[1].h of (4, 16), found (3, 16)",
        lambda: stack(x_of(), (layers.LSTM(8, 8).init_state(B), layers.GRU(8, 16).init_state(3))),
    ),
    (
        ValueError,
        "Window.forward expects state.last of (4, 0, 8), found (4, 1, 8)",
        lambda: layers.Window(8, 4, size=1)(x_of(), layers.Window(8, 4, size=2).init_state(B)),
    ),
    (
        ValueError,
        "MultiHeadAttention.forward expects state of one length, found [10, 11]",
        lambda: attention(x_of(), attention(x_of())[1]._replace(keys=torch.zeros(B, 2, 11, 4))),
    ),
    (
        ValueError,
        "AdditiveAttention.init_state expects memory.values of (4, positions, 6), found (4, 5, 7)",
        lambda: additive.init_state(B, Memory(torch.zeros(B, 5, 7))),
    ),
    (
        ValueError,
        "AdditiveAttention.init_state expects memory.mask of (4, 5), found (4, 10)",
        lambda: additive.init_state(B, Memory(torch.zeros(B, 5, 6), ALL_REAL)),
    ),
    (
        TypeError,
        "AdditiveAttention.init_state expects memory as Memory, found Tensor",
        lambda: additive.init_state(B, torch.zeros(B, 5, 6)),  # type: ignore[arg-type]
    ),
    (
        ValueError,
        "AdditiveAttention.forward expects state.content.keys of (4, any, 8), found (4, 5, 7)",
        lambda: additive(x_of(), layers.AdditiveAttention(7, 6).init_state(B, Memory(torch.zeros(B, 5, 6)))),
    ),
    (
        ValueError,
        "AdditiveAttention.forward expects state.content of one length, found [0, 5]",
        lambda: additive(
            x_of(), Shared(layers.Source(*of_three, *additive.init_state(3).content[1:]), torch.zeros(B).long())
        ),
    ),
    (
        ValueError,
        "AdditiveAttention.forward expects state.rows of (4,), found (3,)",
        lambda: additive(x_of(), additive.init_state(3)),
    ),
    (
        ValueError,
        "AdditiveAttention.step expects state.rows from 0 to 3, found 4",
        lambda: additive.step(x_of()[:, 0], additive.init_state(B)._replace(rows=torch.arange(1, B + 1))),
    ),
    (
        TypeError,
        "Bidirectional.forward expects no initial state, found tuple",
        lambda: both_ways(x_of(), both_ways(x_of())[1]),
    ),
]


@pytest.mark.parametrize(("kind", "message", "call"), WRONG, ids=[message for _, message, _ in WRONG])
def test_invalid_arguments_are_named(kind: type[Exception], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        call()


def test_a_user_defined_layer_has_the_checks(unchecked_types: None) -> None:
    class Sum(layers.Recurrent):
        d_in = d_out = 3

        def init_state(self, batch_size: int, memory: object = None) -> Tensor:
            return torch.zeros(batch_size, 3)

        def step(self, x_t: Tensor, state: Any = None) -> tuple[Tensor, Tensor]:
            state = self.init_state(len(x_t)) if state is None else state
            return x_t + state, x_t + state

    layer, x = Sum(), torch.ones(B, T, 3)
    torch.testing.assert_close(layer(x)[0], x.cumsum(1))
    with pytest.raises(ValueError, match=r"Sum\.forward expects state of \(4, 3\), found \(1, 3\)"):
        layer(x, layer.init_state(1))


def test_a_layer_may_change_its_type_and_its_layers() -> None:
    layer = layers.Stack([nn_layer := layers.LSTM(8, 4), layers.Elman(4, 4)])
    layer(x_of())
    layer.double()
    _, state = layer(x_of().double())
    assert state[0].h.dtype == torch.float64
    with pytest.raises(TypeError, match=r"expects x in torch\.float64, found torch\.float32"):
        layer(x_of())
    layer.float()
    layer.layers[0] = layers.LSTM(8, 4).float()
    layer(x_of(), layer.init_state(B))
    assert nn_layer.weight_input.dtype == torch.float32


def test_autocast_accepts_bfloat16_inputs_and_states() -> None:
    layer = layers.Elman(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for run in (layer, layer.fold):
            _, state = run(x_of().bfloat16())
            y, _ = run(x_of(), map_state(Tensor.bfloat16, state))
            assert y.isfinite().all()
    with pytest.raises(TypeError, match=r"expects x in torch\.float32, found torch\.bfloat16"):
        layer(x_of().bfloat16())


def test_calls_are_checked_again_after_an_error() -> None:
    """The first error is raised inside of the layer."""
    layer = layers.Bidirectional(lstm, layers.LSTM(8, 16))
    with pytest.raises(TypeError, match="looks ahead"):
        layer.step(x_of()[:, 0])
    with pytest.raises(ValueError, match="expects x"):
        layer(x_of(7))


class TestParametersThatChange:
    """Compiled code gets valid tensors even if parameters have changed since the layer was traced."""

    @pytest.mark.parametrize("name", ["weight_hidden", "weight_input", "bias"])
    @pytest.mark.parametrize("execution", ["compiled", "plain"])
    def test_another_size_is_refused(self, name: str, execution: Any) -> None:
        layer = layers.PeepholeLSTM(8, 16)
        with executing(execution):
            layer(x_of())
            getattr(layer, name).data = getattr(layer, name).data[..., :-1].contiguous()
            with pytest.raises((ValueError, RuntimeError), match=r"of the step was|size"):
                layer(x_of())

    def test_another_type_is_refused(self) -> None:
        layer = layers.PeepholeLSTM(8, 16)
        layer(x_of())
        layer.weight_hidden.data = layer.weight_hidden.data.double()
        with pytest.raises((TypeError, RuntimeError), match=r"torch\.float64|dtype|Double"):
            layer(x_of())

    def test_other_strides_give_the_same_outputs(self) -> None:
        layer, x = layers.PeepholeLSTM(8, 16), torch.randn(B, T, 8)
        expected = layer(x)[0]
        for name in ("weight_hidden", "bias", "weight_cell"):
            if hasattr(layer, name):
                data = getattr(layer, name).data
                getattr(layer, name).data = torch.stack((data, data), dim=-1)[..., 0]
        torch.testing.assert_close(layer(x)[0], expected)

    def test_all_parameters_may_change_their_type(self) -> None:
        layer = layers.PeepholeLSTM(8, 16)
        layer(x_of())
        layer.to(torch.float64)
        assert layer(x_of().double())[0].dtype == torch.float64


def error_of(change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the gradient at x if `change` is applied to the gradients that reach the engine."""
    layer, x = layers.PeepholeLSTM(8, 16), torch.randn(B, T, 8, requires_grad=True)
    y, _ = layer.double()(x.double())
    node = y.grad_fn
    while "Recurrence" not in node.name():
        node = node.next_functions[0][0]
    node.register_prehook(lambda errors: tuple(None if e is None else change(e) for e in errors))
    return torch.autograd.grad(y.sum(), x)[0]


def test_incoming_gradients_may_have_any_strides() -> None:
    torch.manual_seed(0)
    expected = error_of(lambda error: error)
    for change in (lambda e: e.t().contiguous().t(), lambda e: torch.stack((e, e), -1)[..., 0]):
        torch.manual_seed(0)
        torch.testing.assert_close(error_of(change), expected)


@needs_compiler
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e[:-1], r"error output 0 of the step is expected as \(40, 16\), found \(39, 16\)"),
        (lambda e: e[:, 1:], r"error output 0 of the step is expected as \(40, 16\), found \(40, 15\)"),
        (lambda e: e.float(), r"error output 0 of the step is expected in torch.float64 on cpu, found torch.float32"),
        (lambda e: e.t().contiguous().t(), r"error output 0 of the step should have contiguous features"),
        (lambda e: e.to("meta"), r"error output 0 of the step is expected in torch.float64 on cpu, found .* on meta"),
    ],
)
def test_invalid_incoming_gradients_are_refused_before_c(change: Callable[[Tensor], Tensor], message: str) -> None:
    """The test calls the runner directly, since torch itself refuses such gradients."""
    layer, x = layers.PeepholeLSTM(8, 16).double(), torch.randn(B, T, 8, dtype=torch.float64)
    rows, runner = Packing.of(x, None), _get_runner(layer)
    assert isinstance(runner, Runner)
    packed, states = _arguments(runner, x, layer.init_state(B), rows)
    tensors = [packed, *states, *(t.detach() for t in runner.trace.weights(read_parameters(layer, runner.trace)))]
    values, needed = (Values.of(items, runner.trace) for items in (tensors, [True] * len(tensors)))
    output, finals, arrays = runner.forward(values, rows, save=True)
    arrays[runner.program.output] = Storage(output)
    with pytest.raises((ValueError, TypeError), match=message):
        runner.backward(values, rows, arrays, [change(torch.ones_like(output)), *finals], needed)


def test_views_with_the_negative_bit_are_read_correctly() -> None:
    """The imaginary part of a conjugate is such a view."""
    layer, z = layers.PeepholeLSTM(8, 16), torch.randn(B, T, 8, dtype=torch.complex64)
    x = z.conj().imag
    assert x.is_neg()
    torch.testing.assert_close(layer(x)[0], layer.fold(x)[0])
