"""LSTM (also with projection), GRU ("after") and Elman equal torch.nn in the engine, torch's kernels and the fold."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ensue.engine import Execution, executing
from ensue.nn import GRU, LSTM, Elman, Recurrent
from ensue.nn.recurrent.lstm import ProjectedLSTM
from ensue.types import leaves
from training.tiny import some_slow

D_IN, D, B, T = 3, 5, 4, 6
LENGTHS = torch.tensor([4, 6, 1, 3])
MASK = torch.arange(T) < LENGTHS.unsqueeze(1)

PAIRS: dict[str, tuple[Callable[[], Recurrent], Callable[[], nn.RNNBase]]] = {
    "lstm": (lambda: LSTM(D_IN, D), lambda: nn.LSTM(D_IN, D, batch_first=True)),
    "projected": (lambda: ProjectedLSTM(D_IN, D, d_cell=7), lambda: nn.LSTM(D_IN, 7, proj_size=D, batch_first=True)),
    "gru": (lambda: GRU(D_IN, D), lambda: nn.GRU(D_IN, D, batch_first=True)),
    "elman tanh": (lambda: Elman(D_IN, D), lambda: nn.RNN(D_IN, D, batch_first=True)),
    "elman relu": (
        lambda: Elman(D_IN, D, activation="relu"),
        lambda: nn.RNN(D_IN, D, batch_first=True, nonlinearity="relu"),
    ),
}


def copied(ours: Recurrent, theirs: nn.RNNBase) -> None:
    """Copy random weights of torch's layer to ours. Torch has two biases where one suffices."""
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.5)
        hidden_bias = theirs.bias_hh_l0
        candidate = hidden_bias[2 * D :].clone()
        bias = theirs.bias_ih_l0 + hidden_bias
        if isinstance(ours, GRU):  # the candidate's second bias is inside the reset gate's product
            bias[2 * D :] = theirs.bias_ih_l0[2 * D :]
            ours.bias_candidate.copy_(candidate)
        ours.weight_input.copy_(theirs.weight_ih_l0)
        ours.weight_hidden.copy_(theirs.weight_hh_l0)
        ours.bias.copy_(bias)
        if isinstance(ours, ProjectedLSTM):
            ours.weight_projection.copy_(theirs.weight_hr_l0)


def run_theirs(theirs: nn.RNNBase, x: Tensor, state: list[Tensor], *, ragged: bool) -> tuple[Tensor, list[Tensor]]:
    before = [leaf.unsqueeze(0) for leaf in state]
    initial = tuple(before) if len(before) > 1 else before[0]
    if ragged:
        packed, after = theirs(pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False), initial)
        y, _ = pad_packed_sequence(packed, batch_first=True, total_length=T)
    else:
        y, after = theirs(x, initial)
    return y, [leaf[0] for leaf in (after if isinstance(after, tuple) else [after])]


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.sampled(9, always="float64-dense-fold")
@pytest.mark.parametrize("execution", ["compiled", "plain", "fold"])
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("dtype", some_slow([torch.float64, torch.float32], torch.float64), ids=["float64", "float32"])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_values_states_and_gradients_equal_those_of_torch(
    pair: tuple[Callable[[], Recurrent], Callable[[], nn.RNNBase]],
    dtype: torch.dtype,
    ragged: bool,
    execution: Execution,
) -> None:
    torch.manual_seed(0)
    ours, theirs = pair[0]().to(dtype), pair[1]().to(dtype)
    copied(ours, theirs)
    x = torch.randn(B, T, D_IN, dtype=dtype, requires_grad=True)
    start = ours.init_state(B)
    state = type(start)(*(torch.randn_like(leaf).requires_grad_() for leaf in start))
    y_weights = torch.randn(B, T, D, dtype=dtype)
    if ragged:
        y_weights = y_weights * MASK.unsqueeze(-1)

    mask = MASK if ragged else None
    if execution == "fold":
        y, final = ours.fold(x, state, mask=mask)
    else:  # without compiled code these layers use torch's fused kernel
        with executing(execution):
            y, final = ours(x, state, mask=mask)
    y_theirs, final_theirs = run_theirs(theirs, x, list(state), ragged=ragged)
    torch.testing.assert_close(y * (y_weights != 0), y_theirs * (y_weights != 0))
    torch.testing.assert_close(list(leaves(final)), final_theirs)

    def gradients(layer: nn.Module, y: Tensor, final: list[Tensor]) -> list[Tensor]:
        total = (y * y_weights).sum() + sum((k + 2) * leaf.sum() for k, leaf in enumerate(final))
        return list(torch.autograd.grad(total, [x, *state, *layer.parameters()]))

    g_x, *g_rest = gradients(ours, y, list(leaves(final)))
    t_x, *t_rest = gradients(theirs, y_theirs, final_theirs)
    count = len(state)
    torch.testing.assert_close([g_x, *g_rest[: count + 2]], [t_x, *t_rest[: count + 2]])
    torch.testing.assert_close(g_rest[count + 2], t_rest[count + 2])  # the bias: torch's first
    if isinstance(ours, GRU):
        torch.testing.assert_close(g_rest[count + 3], t_rest[count + 3][2 * D :])
    if isinstance(ours, ProjectedLSTM):
        torch.testing.assert_close(g_rest[-1], t_rest[-1])


def test_gradients_exist_in_eval_mode_and_outputs_equal_those_without_gradients() -> None:
    """`train()` and `no_grad` may select other kernels with the same results."""
    torch.manual_seed(0)
    layer = LSTM(D_IN, D).eval()
    x = torch.randn(B, T, D_IN, requires_grad=True)
    y, _ = layer(x)
    (dx,) = torch.autograd.grad(y.sum(), x)
    (dx_fold,) = torch.autograd.grad(layer.fold(x)[0].sum(), x)
    torch.testing.assert_close(dx, dx_fold)
    with torch.no_grad():
        torch.testing.assert_close(layer(x)[0], y)
