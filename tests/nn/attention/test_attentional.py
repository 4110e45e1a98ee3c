"""Recurrent decoders with a memory equal their equations in loops over positions."""

import pytest
import torch
from torch import Tensor

from ensue.nn import LSTM, AttentionalLayer, BilinearAttention, Elman, FromContext, InputFeeding, Stack, WithContext
from ensue.types import Memory

B, T, S, D, D_MEMORY = 3, 4, 5, 4, 6
LENGTHS = [5, 1, 2]
pytestmark = pytest.mark.usefixtures("in_torch_operations")


def numbers(*sizes: int) -> Tensor:
    return torch.randn(*sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(sizes)))


H = numbers(B, S, D_MEMORY)
MEMORY = Memory(H, torch.arange(S) < torch.tensor(LENGTHS).unsqueeze(1))


def elman(layer: Elman, x: Tensor, h: Tensor) -> Tensor:
    return torch.tanh(layer.weight_input @ x + layer.weight_hidden @ h + layer.bias)


def attentional(layer: AttentionalLayer, x: Tensor, row: int) -> Tensor:
    """Return `tanh(W [c; x])` with the context c of bilinear attention."""
    source = H[row, : LENGTHS[row]]
    attention = layer.attention
    assert isinstance(attention, BilinearAttention)
    weights = torch.stack([(x @ attention.project_memory.weight @ h).exp() for h in source])
    context = sum(weight / weights.sum() * h for weight, h in zip(weights, source, strict=True))
    assert isinstance(context, Tensor)
    return torch.tanh(layer.combine.weight @ torch.cat((context, x)))


def test_attention_after_the_cells_equals_its_equations() -> None:
    cell, reads = Elman(D, 7).double(), AttentionalLayer(BilinearAttention(7, D_MEMORY), d_out=5).double()
    layer, x = Stack([cell, reads]), numbers(B, T, D)
    y, _ = layer(x, layer.init_state(B, MEMORY))
    for row in range(B):
        h = torch.zeros(7, dtype=torch.float64)
        for t in range(T):
            h = elman(cell, x[row, t], h)
            torch.testing.assert_close(y[row, t], attentional(reads, h, row))


def test_input_feeding_equals_its_equations() -> None:
    cell, reads = Elman(D + 5, 7).double(), AttentionalLayer(BilinearAttention(7, D_MEMORY), d_out=5).double()
    layer, x = InputFeeding(cell, reads), numbers(B, T, D)
    y, _ = layer(x, layer.init_state(B, MEMORY))
    for row in range(B):
        h, fed = torch.zeros(7, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
        for t in range(T):
            h = elman(cell, torch.cat((x[row, t], fed)), h)
            fed = attentional(reads, h, row)
            torch.testing.assert_close(y[row, t], fed)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_initial_states_from_the_context_equal_their_equations(bidirectional: bool) -> None:
    layer = FromContext(LSTM(D, 7), D_MEMORY, bidirectional=bidirectional).double()
    state = layer.init_state(B, MEMORY)
    for row, length in enumerate(LENGTHS):
        c = H[row, length - 1].clone()
        if bidirectional:
            c[D_MEMORY // 2 :] = H[row, 0, D_MEMORY // 2 :]
        for leaf, start in zip(state, layer.starts, strict=True):
            torch.testing.assert_close(leaf[row], torch.tanh(start.weight @ c + start.bias))
    x = numbers(B, T, D)
    torch.testing.assert_close(layer(x, state)[0], layer.layer(x, state)[0])


def test_cells_that_read_the_context_equal_their_equations() -> None:
    cell = Elman(D + D_MEMORY, 7).double()
    layer, x = WithContext(cell, D_MEMORY).double(), numbers(B, T, D)
    y, _ = layer(x, layer.init_state(B, MEMORY))
    for row, length in enumerate(LENGTHS):
        h = torch.zeros(7, dtype=torch.float64)
        for t in range(T):
            h = elman(cell, torch.cat((x[row, t], H[row, length - 1])), h)
            torch.testing.assert_close(y[row, t], h)
