"""The variants of the LSTM against their equations written out row by row, torch.nn, and the cases they have in common.

The written-out ones know the names of a layer's parameters and nothing else of it; autograd differentiates them.
"""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn, sigmoid, tanh
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ensue.nn import Recurrent
from ensue.nn.recurrent.lstm import CoupledLSTM, LayerNormLSTM, PeepholeLSTM, ProjectedLSTM
from training.tiny import some_slow

D_IN, D, D_CELL, B, T = 3, 5, 7, 5, 6
LENGTHS = [4, 6, 0, 1, 3]
MASK = torch.arange(T) < torch.tensor(LENGTHS).unsqueeze(1)

Weights = Mapping[str, Tensor]
Pair = tuple[Tensor, Tensor]
Cell = Callable[[Weights, Tensor, Tensor, Tensor], Pair]


def block(w: Weights, name: str, k: int) -> Tensor:
    """The k-th of the blocks of D rows that a parameter stacks."""
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


def drawn(layer: nn.Module) -> None:
    """Every parameter far from the gentle values that training begins with."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.6)


def row_by_row(cell: Cell, w: Weights, x: Tensor, state: tuple[Tensor, Tensor], lengths: list[int]) -> list[Tensor]:
    """Outputs (B, T, D) with zeros at padding, and each row's h and c after its last position."""
    rows = []
    for row, length in enumerate(lengths):
        h, c = state[0][row], state[1][row]
        outputs = []
        for t in range(length):
            h, c = cell(w, x[row, t], h, c)
            outputs.append(h)
        rows.append((torch.stack([*outputs, *[torch.zeros_like(h)] * (T - length)]), h, c))
    return [torch.stack(part) for part in zip(*rows, strict=True)]


def gradients(results: list[Tensor], sources: list[Tensor]) -> list[Tensor]:
    """Of a sum of `results`, each entry with a weight of its own."""
    generator = torch.Generator().manual_seed(7)
    weighted = [(r * torch.randn(r.shape, dtype=torch.float64, generator=generator).to(r)).sum() for r in results]
    return list(torch.autograd.grad(torch.stack(weighted).sum(), sources))


def real(y: Tensor, ragged: bool) -> Tensor:
    return y.masked_fill(~MASK.unsqueeze(-1), 0.0) if ragged else y


def started(layer: Recurrent, dtype: torch.dtype) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Inputs, and a state that is not the initial one."""
    x = torch.randn(B, T, D_IN, dtype=dtype, requires_grad=True)
    state = layer.init_state(B)
    return x, type(state)(*(torch.randn_like(leaf).requires_grad_() for leaf in state))


@pytest.mark.sampled(2, always="float64-dense-fold")
@pytest.mark.parametrize("execution", ["forward", "fold"])
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("dtype", some_slow([torch.float64, torch.float32], torch.float64), ids=["float64", "float32"])
@pytest.mark.parametrize(("make", "cell"), CELLS.values(), ids=CELLS)
def test_values_states_and_gradients(
    make: Callable[[int, int], Recurrent], cell: Cell, dtype: torch.dtype, ragged: bool, execution: str
) -> None:
    torch.manual_seed(0)
    layer = make(D_IN, D).to(dtype)
    drawn(layer)
    x, state = started(layer, dtype)
    sources = [x, *state, *layer.parameters()]
    y, final = getattr(layer, execution)(x, state, mask=MASK if ragged else None)
    found = [real(y, ragged), *final]
    expected = row_by_row(cell, dict(layer.named_parameters()), x, state, LENGTHS if ragged else [T] * B)
    tolerance = {"rtol": 1e-9, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 2e-5}
    torch.testing.assert_close(found, expected, **tolerance)
    torch.testing.assert_close(gradients(found, sources), gradients(expected, sources), **tolerance)


def run_torch(theirs: nn.LSTM, x: Tensor, state: tuple[Tensor, ...], ragged: bool) -> list[Tensor]:
    """Outputs and final leaves. Torch packs no empty rows, so those are left out."""
    given = tuple(leaf.unsqueeze(0) for leaf in state)
    if not ragged:
        y, after = theirs(x, given)
        return [y, *(leaf[0] for leaf in after)]
    rows = [row for row, length in enumerate(LENGTHS) if length]
    lengths = torch.tensor([LENGTHS[row] for row in rows])
    packed = pack_padded_sequence(x[rows], lengths, batch_first=True, enforce_sorted=False)
    y, after = theirs(packed, tuple(leaf[:, rows] for leaf in given))
    return [pad_packed_sequence(y, batch_first=True, total_length=T)[0], *(leaf[0] for leaf in after)]


@pytest.mark.parametrize("execution", ["forward", "fold"])
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
def test_a_projected_lstm_is_that_of_torch(ragged: bool, execution: str) -> None:
    torch.manual_seed(0)
    ours, theirs = ProjectedLSTM(D_IN, D, d_cell=D_CELL).double(), nn.LSTM(D_IN, D_CELL, proj_size=D, batch_first=True)
    theirs = theirs.double()
    drawn(theirs)
    with torch.no_grad():
        ours.weight_input.copy_(theirs.weight_ih_l0)
        ours.weight_hidden.copy_(theirs.weight_hh_l0)
        ours.bias.copy_(theirs.bias_ih_l0 + theirs.bias_hh_l0)
        ours.weight_projection.copy_(theirs.weight_hr_l0)
    x, state = started(ours, torch.float64)
    y, final = getattr(ours, execution)(x, state, mask=MASK if ragged else None)
    rows = MASK.any(1) if ragged else torch.ones(B, dtype=torch.bool)
    found = [part[rows] for part in (real(y, ragged), *final)]
    expected = run_torch(theirs, x, state, ragged)
    torch.testing.assert_close(found, expected)
    own = [x, *state, ours.weight_input, ours.weight_hidden, ours.bias, ours.weight_projection]
    their = [theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0, theirs.weight_hr_l0]
    torch.testing.assert_close(gradients(found, own), gradients(expected, [x, *state, *their]))
    torch.testing.assert_close([leaf[~rows] for leaf in final], [leaf[~rows] for leaf in state])


def test_a_normalized_layer_does_not_see_the_scale_of_its_weights() -> None:
    torch.manual_seed(0)
    layer = LayerNormLSTM(D_IN, D).double()
    drawn(layer)
    x = 100 * torch.randn(B, T, D_IN, dtype=torch.float64)
    state = layer.init_state(B)._replace(h=torch.randn(B, D, dtype=torch.float64))
    y, _ = layer(x[:, :1], state)
    with torch.no_grad():
        layer.weight_input.mul_(1000)
    torch.testing.assert_close(layer(x[:, :1], state)[0], y, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        layer.weight_input.add_(3)  # the same for every gate: the mean over all of them takes it away
    torch.testing.assert_close(layer(x[:, :1], state)[0], y, rtol=1e-5, atol=1e-6)


VARIANTS: list[Callable[[], Recurrent]] = [
    lambda: PeepholeLSTM(D_IN, D),
    lambda: CoupledLSTM(D_IN, D),
    lambda: LayerNormLSTM(D_IN, D),
    lambda: ProjectedLSTM(D_IN, D, d_cell=D_CELL),
]


@pytest.mark.parametrize("make", VARIANTS, ids=lambda make: type(make()).__name__)
def test_a_fresh_layer_remembers_and_turns(make: Callable[[], Recurrent]) -> None:
    """The forget bias is 1 and the others 0; every gate's U is orthogonal; W and U of the gates are not the same."""
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
