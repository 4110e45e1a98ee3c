"""The depth-gated LSTM against the paper's equations, one row, position and layer at a time, and against torch.nn."""

import pytest
import torch
from torch import Tensor, nn

from ensue.nn.recurrent.lstm_stacks import DepthGatedLSTM
from ensue.types import State, leaves
from nn.recurrent.row_by_row import D_IN, B, D, Found, T, check, randomized, row_by_row
from training.tiny import some_slow


def layer_of(num_layers: int) -> DepthGatedLSTM:
    return randomized(DepthGatedLSTM(D_IN, D, num_layers=num_layers))


def written_out(layer: DepthGatedLSTM, x: Tensor, state: State, lengths: list[int]) -> Found:
    """Yao et al. 2015, without peepholes at the gates of the LSTM. Returns the outputs and h and c of each layer."""
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


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("num_layers", some_slow([1, 2, 3], 2))
def test_values_states_and_gradients(num_layers: int, ragged: bool) -> None:
    check(layer_of(num_layers), written_out, ragged=ragged)


def test_with_shut_depth_gates_it_is_a_stack_of_lstms() -> None:
    layer, theirs = layer_of(3), nn.LSTM(D_IN, D, num_layers=3, batch_first=True).double()
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


def test_forget_biases_start_at_one() -> None:
    bottom, upper = DepthGatedLSTM(D_IN, D, num_layers=2).stack
    for bias in (bottom.lstm.bias, upper.bias):
        assert [block.unique().tolist() for block in bias.split(D)] == [[0], [1], [0], [0], [0]][: len(bias) // D]
