"""Layers whose steps are equal graphs share one program, and other layers do not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from engine.written_steps import D, Written
from ensue.engine import Execution, executing
from ensue.engine.program import build
from ensue.engine.trace import trace
from ensue.nn import GRU, LSTM, Elman, PeepholeLSTM, SequenceLayer

Step = Callable[[Written, Tensor, Tensor], Tensor]


def layer_of(step: Step) -> Written:
    def write(layer: Written, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = step(layer, x, a)
        return y, y, b

    return Written(write)


def scaled(by: float) -> Written:
    return layer_of(lambda layer, x, a: torch.tanh(x @ layer.W + a) * by)


def share_program(one: SequenceLayer, other: SequenceLayer) -> bool:
    return build(trace(one)) is build(trace(other))


class Halving(LSTM):
    def step(self, x_t: Tensor, state: object = None) -> object:  # type: ignore[override]
        y, after = super().step(x_t, state)  # type: ignore[arg-type]
        return y * 0.5, after


@pytest.mark.parametrize(
    "make",
    [
        lambda: LSTM(3, 4), lambda: GRU(3, 4), lambda: Elman(3, 4), lambda: PeepholeLSTM(3, 4), lambda: scaled(0.25),
        lambda: Halving(3, 4),
    ],
)  # fmt: skip
def test_equal_layers_share_a_program(make: Callable[[], SequenceLayer]) -> None:
    assert share_program(make(), make())
    assert share_program(make(), make().double().eval())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LSTM(3, 4), LSTM(3, 5)), (LSTM(3, 4), LSTM(2, 4)), (LSTM(3, 4), PeepholeLSTM(3, 4)),
        (LSTM(3, 4), Halving(3, 4)), (scaled(0.25), scaled(0.5)), (scaled(0.0), scaled(-0.0)), (scaled(2), scaled(2.5)),
        (layer_of(lambda l, x, a: x @ l.W + l.u), layer_of(lambda l, x, a: x @ l.W)),
        (layer_of(lambda l, x, a: x @ l.W + a), layer_of(lambda l, x, a: a @ l.W + x)),
        (layer_of(lambda l, x, a: x @ l.W - a), layer_of(lambda l, x, a: a - x @ l.W)),
        (layer_of(lambda l, x, a: x @ l.W + x @ (l.W * 2)), layer_of(lambda l, x, a: x @ l.W + x @ l.W)),
    ],
)  # fmt: skip
def test_different_layers_share_no_program(one: SequenceLayer, other: SequenceLayer) -> None:
    assert not share_program(one, other)


def test_an_attribute_that_changes_is_seen_by_the_next_layer() -> None:
    class Leaky(Written):
        slope = 0.25

    def write(layer: Leaky, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = torch.tanh(x @ layer.W + a) * layer.slope
        return y, y, b

    one, other = Leaky(write), Leaky(write)  # type: ignore[arg-type]
    assert share_program(one, other)
    other.slope = 0.5
    assert not share_program(one, other)


@pytest.mark.parametrize("execution", ["compiled", "plain"])
def test_layers_that_share_a_program_use_their_own_weights_and_constants(execution: Execution) -> None:
    def layer_of_seed(seed: int) -> Written:
        generator = torch.Generator().manual_seed(seed)
        constant = torch.randn(D, generator=generator, dtype=torch.float64)
        layer = layer_of(lambda layer, x, a: torch.tanh(x @ (layer.W * 2) + a * layer.constant + layer.v))
        layer.constant = constant
        for parameter in layer.parameters():
            nn.init.normal_(parameter, generator=generator)
        return layer

    one, other = layer_of_seed(1), layer_of_seed(2)
    assert share_program(one, other)
    x = torch.randn(2, 3, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for layer in (one, other, one):
        with executing(execution):
            y, _ = layer(x)
        gradients = torch.autograd.grad(y.square().sum(), [x, layer.W, layer.v])
        expected = torch.autograd.grad(layer.fold(x)[0].square().sum(), [x, layer.W, layer.v])
        torch.testing.assert_close(gradients, expected)
