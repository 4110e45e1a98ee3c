"""Attention before the cell equals its equations, and hard attention draws by its weights."""

import pytest
import torch

from ensue.nn import GRU, AdditiveAttention, AttentionBefore, BilinearAttention, Elman, FromContext, HardAttention
from ensue.nn.draws import RowSlice, drawing_rows
from ensue.types import Memory


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def test_attention_before_the_cell_equals_the_equations_of_xu_et_al() -> None:
    cell = FromContext(Elman(3 + 2, 4), 2, mean=True)
    layer = AttentionBefore(cell, AdditiveAttention(4, 2, d_attention=5), d_out=6).double()
    a, x = torch.randn(2, 7, 2).double(), torch.randn(2, 3, 3).double()
    real = torch.arange(7) < torch.tensor([[7], [4]])
    y, _ = layer(x, layer.init_state(2, Memory(a, real)))

    attention, elman = layer.attention, cell.layer
    assert isinstance(attention, AdditiveAttention)
    assert isinstance(elman, Elman)
    assert layer.gate is not None
    for row, length in enumerate((7, 4)):
        places = a[row, :length]
        h = torch.tanh(layer.start(places.mean(0)))
        inner = cell.init_state(2, Memory(a, real))[0][row : row + 1]
        torch.testing.assert_close(inner[0], torch.tanh(cell.starts[0](places.mean(0))))
        for t in range(3):
            energies = torch.stack(
                [attention.vector(torch.tanh(attention.project_in(h) + attention.project_memory(v))) for v in places]
            )
            alpha = energies.flatten().softmax(0)
            z = torch.sigmoid(layer.gate(h)) * (alpha.unsqueeze(1) * places).sum(0)
            h, state = elman.step(torch.cat((x[row, t], z)).unsqueeze(0), type(elman.init_state(1))(inner))
            h, inner = h[0], state[0]
            expected = torch.tanh(layer.combine(torch.cat((x[row, t], h, z))))
            torch.testing.assert_close(y[row, t], expected)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot read the 4 features"):
        AttentionBefore(GRU(5, 4), BilinearAttention(3, 2), d_out=4)
    with pytest.raises(ValueError, match="must exceed the 2 features of"):
        AttentionBefore(GRU(2, 4), BilinearAttention(4, 2), d_out=4)
    with pytest.raises(ValueError, match="is not causal or needs another memory"):
        AttentionBefore(FromContext(GRU(5, 4), 3), BilinearAttention(4, 2), d_out=4)


def test_draws_have_the_probabilities_of_the_weights() -> None:
    attention = HardAttention(3, 2)
    alpha = torch.tensor([0.1, 0.0, 0.6, 0.3]).expand(20_000, 1, 1, 4)
    drawn = attention.draw(alpha)
    assert (drawn.sum(3) == 1).all()
    torch.testing.assert_close(drawn.mean(0).flatten(), alpha[0].flatten(), atol=0.015, rtol=0)
    assert not drawn[..., 1].any()
    assert not attention.draw(torch.zeros(2, 1, 1, 4)).any()  # all positions are masked


def test_hard_attention_reads_one_position_and_in_evaluation_the_most_probable() -> None:
    attention = HardAttention(3, 2)
    memory, x = Memory(torch.randn(5, 4, 2)), torch.randn(5, 1, 3)
    y, _ = attention(x, attention.init_state(5, memory))
    assert all((memory.values[row] == y[row, 0]).all(1).any() for row in range(5))
    attention.eval()
    y, state = attention(x, attention.init_state(5, memory))
    best = attention.scores(attention.queries(x), state.content.keys).argmax(2)
    torch.testing.assert_close(y[:, 0], memory.values[torch.arange(5), best[:, 0]])
    attention.train()
    attention.expected = 1.0  # soft attention
    soft = AdditiveAttention(3, 2)
    soft.load_state_dict(attention.state_dict())
    torch.testing.assert_close(attention(x, state)[0], soft(x, state)[0])


def test_draws_of_a_row_do_not_depend_on_the_slice_of_the_batch() -> None:
    attention = HardAttention(3, 2, expected=0.5)
    memory, x = torch.randn(6, 4, 2), torch.randn(6, 1, 3)
    torch.manual_seed(7)
    full, _ = attention(x, attention.init_state(6, Memory(memory)))
    torch.manual_seed(7)
    with drawing_rows(RowSlice(slice(2, 5), 6)):
        sliced, _ = attention(x[2:5], attention.init_state(3, Memory(memory[2:5])))
    torch.testing.assert_close(sliced, full[2:5])
