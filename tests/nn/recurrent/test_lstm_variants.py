"""Variants of the LSTM equal their equations over the same parameters, differentiated by autograd."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, sigmoid, tanh

from ensue.nn import Recurrent
from ensue.nn.recurrent.lstm import CoupledLSTM, LayerNormLSTM, PeepholeLSTM, ProjectedLSTM
from ensue.types import State
from nn.recurrent.row_by_row import D_IN, B, D, Found, T, check, randomized, row_by_row

Weights = Mapping[str, Tensor]
Pair = tuple[Tensor, Tensor]
Cell = Callable[[Weights, Tensor, Tensor, Tensor], Pair]


def block(w: Weights, name: str, k: int) -> Tensor:
    """Return the k-th block of D rows of a parameter."""
    return w[name][k * D : (k + 1) * D]


def net(w: Weights, k: int, x: Tensor, h: Tensor) -> Tensor:
    return block(w, "weight_input", k) @ x + block(w, "weight_hidden", k) @ h + block(w, "bias", k)


def peephole(w: Weights, x: Tensor, h: Tensor, c: Tensor) -> Pair:
    i = sigmoid(net(w, 0, x, h) + torch.diag(w["peephole_input"]) @ c)
    f = sigmoid(net(w, 1, x, h) + torch.diag(w["peephole_forget"]) @ c)
    new = f * c + i * tanh(net(w, 2, x, h))
    o = sigmoid(net(w, 3, x, h) + torch.diag(w["peephole_output"]) @ new)
    return o * tanh(new), new


def coupled(w: Weights, x: Tensor, h: Tensor, c: Tensor) -> Pair:
    f, g, o = sigmoid(net(w, 0, x, h)), tanh(net(w, 1, x, h)), sigmoid(net(w, 2, x, h))
    new = g + f * (c - g)
    return o * tanh(new), new


def normalized(a: Tensor) -> Tensor:
    mean = sum(a.unbind()) / len(a)
    variance = sum(((a - mean) ** 2).unbind()) / len(a)
    return (a - mean) / (variance + 1e-5) ** 0.5


def layer_norm(w: Weights, x: Tensor, h: Tensor, c: Tensor) -> Pair:
    z = w["gain_input"] * normalized(w["weight_input"] @ x) + w["gain_hidden"] * normalized(w["weight_hidden"] @ h)
    i, f, g, o = (z + w["bias"]).reshape(4, D)
    new = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(w["gain_cell"] * normalized(new) + w["bias_cell"]), new


CELLS: dict[str, tuple[type[Recurrent], Cell]] = {
    "peephole": (PeepholeLSTM, peephole),
    "coupled": (CoupledLSTM, coupled),
    "layer norm": (LayerNormLSTM, layer_norm),
}


@pytest.mark.sampled(3, always="dense-fold")
@pytest.mark.parametrize("execution", ["forward", "fold"])
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize(("make", "cell"), CELLS.values(), ids=CELLS)
def test_values_states_and_gradients_equal_the_equations(
    make: Callable[[int, int], Recurrent], cell: Cell, ragged: bool, execution: str
) -> None:
    def written_out(layer: Recurrent, x: Tensor, state: State, lengths: list[int]) -> Found:
        w = dict(layer.named_parameters())

        def step(x_t: Tensor, old: list[Tensor], _: object) -> tuple[Tensor, Pair]:
            h, c = cell(w, x_t, *old)
            return h, (h, c)

        return row_by_row(step, x, state, lengths)

    check(randomized(make(D_IN, D)), written_out, ragged=ragged, run=execution)


def test_layer_norm_ignores_scale_and_offset_of_the_weights() -> None:
    layer = randomized(LayerNormLSTM(D_IN, D))
    x = 100 * torch.randn(B, T, D_IN, dtype=torch.float64)
    state = layer.init_state(B)._replace(h=torch.randn(B, D, dtype=torch.float64))
    y, _ = layer(x[:, :1], state)
    with torch.no_grad():
        layer.weight_input.mul_(1000)
    torch.testing.assert_close(layer(x[:, :1], state)[0], y, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        layer.weight_input.add_(3)  # the same for every gate, so their mean subtracts it
    torch.testing.assert_close(layer(x[:, :1], state)[0], y, rtol=1e-5, atol=1e-6)


VARIANTS: list[Callable[[], Recurrent]] = [
    lambda: PeepholeLSTM(D_IN, D),
    lambda: CoupledLSTM(D_IN, D),
    lambda: LayerNormLSTM(D_IN, D),
    lambda: ProjectedLSTM(D_IN, D, d_cell=7),
]


@pytest.mark.parametrize("make", VARIANTS, ids=lambda make: type(make()).__name__)
def test_biases_and_weights_of_a_new_layer_are_initialized(make: Callable[[], Recurrent]) -> None:
    """The forget bias is 1, others 0; every gate has another orthogonal U; W is Glorot-uniform for each gate."""
    layer = make()
    parameters = dict(layer.named_parameters())
    gates = [name for name, _ in layer.get_submodule("gates").named_children()]
    for gate, bias in zip(gates, parameters["bias"].chunk(len(gates)), strict=True):
        assert bool((bias == (gate == "forget")).all())
    blocks = parameters["weight_hidden"].chunk(len(gates))
    for U in blocks:
        torch.testing.assert_close(U.T @ U, torch.eye(D))
    assert not torch.equal(blocks[0], blocks[1])
    W = parameters["weight_input"]
    bound = (6 / (D_IN + len(W) // len(gates))) ** 0.5
    assert 0.8 * bound < W.abs().max() <= bound
