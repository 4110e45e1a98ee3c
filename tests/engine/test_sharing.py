"""Layers whose steps are the same graph share one program; layers of which anything else differs do not."""

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


def written(of: Step) -> Written:
    def write(layer: Written, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = of(layer, x, a)
        return y, y, b

    return Written(write)


def scaled(by: float) -> Written:
    return written(lambda layer, x, a: torch.tanh(x @ layer.W + a) * by)


def shares(one: SequenceLayer, other: SequenceLayer) -> bool:
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
def test_equal_layers_share(make: Callable[[], SequenceLayer]) -> None:
    assert shares(make(), make())
    assert shares(make(), make().double().eval())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LSTM(3, 4), LSTM(3, 5)), (LSTM(3, 4), LSTM(2, 4)), (LSTM(3, 4), PeepholeLSTM(3, 4)),
        (LSTM(3, 4), Halving(3, 4)), (scaled(0.25), scaled(0.5)), (scaled(0.0), scaled(-0.0)), (scaled(2), scaled(2.5)),
        (written(lambda l, x, a: x @ l.W + l.u), written(lambda l, x, a: x @ l.W)),
        (written(lambda l, x, a: x @ l.W + a), written(lambda l, x, a: a @ l.W + x)),
        (written(lambda l, x, a: x @ l.W - a), written(lambda l, x, a: a - x @ l.W)),
        (written(lambda l, x, a: x @ l.W + x @ (l.W * 2)), written(lambda l, x, a: x @ l.W + x @ l.W)),
    ],
)  # fmt: skip
def test_different_layers_do_not(one: SequenceLayer, other: SequenceLayer) -> None:
    assert not shares(one, other)


def test_an_attribute_that_changes_is_seen_by_the_next_layer() -> None:
    class Leaky(Written):
        slope = 0.25

    def write(layer: Leaky, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = torch.tanh(x @ layer.W + a) * layer.slope
        return y, y, b

    one, other = Leaky(write), Leaky(write)  # type: ignore[arg-type]
    assert shares(one, other)
    other.slope = 0.5
    assert not shares(one, other)


@pytest.mark.parametrize("execution", ["compiled", "plain"])
def test_each_layer_that_shares_has_its_own_weights_masks_and_constants(execution: Execution) -> None:
    def made(seed: int) -> Written:
        numbers = torch.Generator().manual_seed(seed)
        constant = torch.randn(D, generator=numbers, dtype=torch.float64)
        layer = written(lambda layer, x, a: torch.tanh(x @ (layer.W * 2) + a * layer.constant + layer.v))
        layer.constant = constant
        for parameter in layer.parameters():
            nn.init.normal_(parameter, generator=numbers)
        return layer

    one, other = made(1), made(2)
    assert shares(one, other)
    x = torch.randn(2, 3, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for layer in (one, other, one):
        with executing(execution):
            y, _ = layer(x)
        found = torch.autograd.grad(y.square().sum(), [x, layer.W, layer.v])
        expected = torch.autograd.grad(layer.fold(x)[0].square().sum(), [x, layer.W, layer.v])
        torch.testing.assert_close(found, expected)
