"""The Grid LSTM against the paper's equations, one row, position, layer and dimension at a time."""

import pytest
import torch
from torch import Tensor

from ensue.nn.recurrent.lstm import LSTMState
from ensue.nn.recurrent.lstm_stacks import GridLSTM
from ensue.types import State
from nn.recurrent.row_by_row import D_IN, B, D, Found, check, randomized, row_by_row, started
from training.tiny import some_slow


def layer_of(num_layers: int) -> GridLSTM:
    return randomized(GridLSTM(D_IN, D, num_layers=num_layers))


def lstm(H: Tensor, c: Tensor, W: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """W is (4, d, 2 d), one matrix for each gate; H is both hidden vectors."""
    i, f, o = (torch.sigmoid(W[gate] @ H + b[gate]) for gate in (0, 1, 3))
    c = f * c + i * torch.tanh(W[2] @ H + b[2])
    return o * torch.tanh(c), c


def written_out(layer: GridLSTM, x: Tensor, state: State, lengths: list[int]) -> Found:
    """Kalchbrenner et al. 2015. Returns the outputs, and h and c of each layer in time."""

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


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("num_layers", some_slow([1, 2, 3], 2))
def test_values_states_and_gradients(num_layers: int, ragged: bool) -> None:
    check(layer_of(num_layers), written_out, ragged=ragged)


def test_the_last_layer_in_time_shows_at_the_next_position_only() -> None:
    layer = layer_of(2)
    _, (first, last) = started(layer)
    x = torch.randn(B, D_IN, dtype=torch.float64)
    _, (_, after) = layer.step(x, (first, last))
    moved = LSTMState(after.h + 1, after.c)
    y, _ = layer.step(x, (first, after))
    y_moved, _ = layer.step(x, (first, moved))
    assert not torch.isclose(y, y_moved).any()


def test_forget_biases_start_at_one() -> None:
    (part,) = GridLSTM(D_IN, D, num_layers=1).stack
    assert part.bias.view(2, 4, D)[:, 1].unique().tolist() == [1]
    assert part.bias.sum() == 2 * D
