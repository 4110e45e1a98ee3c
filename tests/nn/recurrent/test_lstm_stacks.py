"""Stacks of LSTMs equal the papers' equations in loops, and torch.nn."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ensue.nn.recurrent.lstm import LSTMState
from ensue.nn.recurrent.lstm_stacks import DepthGatedLSTM, GridLSTM
from ensue.types import State, leaves
from nn.recurrent.row_by_row import D_IN, B, D, Found, T, check, randomized, row_by_row, started
from training.tiny import some_slow


def depth_gated(layer: DepthGatedLSTM, x: Tensor, state: State, lengths: list[int]) -> Found:
    """Return the outputs and h and c of each layer by Yao et al. 2015, without peepholes at the gates of the LSTM."""
    bottom, *uppers = layer.stack

    def step(below: Tensor, old: list[Tensor], _: object) -> tuple[Tensor, list[Tensor]]:
        after, c_below = list[Tensor](), None
        for part, h, c in zip([bottom.lstm, *uppers], old[::2], old[1::2], strict=True):
            W, U, b = part.weight_input.split(D), part.weight_hidden.split(D), part.bias.split(D)
            z_i, z_f, z_g, z_o = (W[k] @ below + U[k] @ h + b[k] for k in range(4))
            new = z_f.sigmoid() * c + z_i.sigmoid() * z_g.tanh()
            if c_below is not None:
                z_d = W[4] @ below + part.weight_cell * c + part.weight_below * c_below + b[4]
                new = new + z_d.sigmoid() * c_below
            below, c_below = z_o.sigmoid() * new.tanh(), new
            after += [below, new]
        return below, after

    return row_by_row(step, x, state, lengths)


def lstm(H: Tensor, c: Tensor, W: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return h and c; W is (4, d, 2 d), one matrix for each gate; H is both hidden vectors."""
    i, f, o = (torch.sigmoid(W[gate] @ H + b[gate]) for gate in (0, 1, 3))
    c = f * c + i * torch.tanh(W[2] @ H + b[2])
    return o * torch.tanh(c), c


def grid(layer: GridLSTM, x: Tensor, state: State, lengths: list[int]) -> Found:
    """Return the outputs, and h and c of each layer in time by Kalchbrenner et al. 2015."""

    def step(x_t: Tensor, old: list[Tensor], _: object) -> tuple[Tensor, list[Tensor]]:
        h_depth, c_depth = (layer.entry.weight @ x_t + layer.entry.bias).view(2, D)
        after = list[Tensor]()
        for part, h_time, c_time in zip(layer.stack, old[::2], old[1::2], strict=True):
            W = torch.cat((part.weight_hidden, part.weight_input), dim=1).view(2, 4, D, 2 * D)
            b = part.bias.view(2, 4, D)
            H = torch.cat((h_time, h_depth))
            after += lstm(H, c_time, W[0], b[0])
            h_depth, c_depth = lstm(H, c_depth, W[1], b[1])
        return h_depth, after

    return row_by_row(step, x, state, lengths)


EQUATIONS = {DepthGatedLSTM: depth_gated, GridLSTM: grid}


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("num_layers", some_slow([1, 2, 3], 2))
@pytest.mark.parametrize("kind", EQUATIONS)
def test_values_states_and_gradients_equal_the_equations(kind: Any, num_layers: int, ragged: bool) -> None:
    check(randomized(kind(D_IN, D, num_layers=num_layers)), EQUATIONS[kind], ragged=ragged)


def test_closed_depth_gates_give_a_stack_of_lstms() -> None:
    layer, theirs = (
        randomized(DepthGatedLSTM(D_IN, D, num_layers=3)),
        nn.LSTM(D_IN, D, num_layers=3, batch_first=True).double(),
    )
    bottom, *uppers = layer.stack
    with torch.no_grad():
        for k, part in enumerate([bottom.lstm, *uppers]):
            part.bias[4 * D :] = -1e4
            for name, ours in (
                ("weight_ih", part.weight_input),
                ("weight_hh", part.weight_hidden),
                ("bias_ih", part.bias),
            ):
                theirs.get_parameter(f"{name}_l{k}").copy_(ours[: 4 * D])
            theirs.get_parameter(f"bias_hh_l{k}").zero_()
    x = torch.randn(B, T, D_IN, dtype=torch.float64)
    y, state = layer(x)
    y_theirs, (h, c) = theirs(x)
    torch.testing.assert_close(y, y_theirs)
    torch.testing.assert_close(list(leaves(state)), [leaf for pair in zip(h, c, strict=True) for leaf in pair])


def test_the_state_of_the_last_layer_changes_the_next_output() -> None:
    layer = randomized(GridLSTM(D_IN, D, num_layers=2))
    _, (first, last) = started(layer)
    x = torch.randn(B, D_IN, dtype=torch.float64)
    _, (_, after) = layer.step(x, (first, last))
    moved = LSTMState(after.h + 1, after.c)
    y, _ = layer.step(x, (first, after))
    y_moved, _ = layer.step(x, (first, moved))
    assert not torch.isclose(y, y_moved).any()


def test_forget_biases_start_at_one() -> None:
    bottom, upper = DepthGatedLSTM(D_IN, D, num_layers=2).stack
    for bias in (bottom.lstm.bias, upper.bias):
        assert [block.unique().tolist() for block in bias.split(D)] == [[0], [1], [0], [0], [0]][: len(bias) // D]
    (part,) = GridLSTM(D_IN, D, num_layers=1).stack
    assert part.bias.view(2, 4, D)[:, 1].unique().tolist() == [1]
    assert part.bias.sum() == 2 * D
