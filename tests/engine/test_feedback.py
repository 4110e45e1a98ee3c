"""Layers with attention between two positions of a cell, run by the engine, equal their fold."""

import pytest
import torch
from torch import Tensor

from engine.twins import needs_compiler
from ensue import nn as layers
from ensue.engine import Execution, executing, explain
from ensue.nn.attention import scores as module
from ensue.types import Memory, leaves, select_rows

B, T, S, D_MEMORY = 5, 6, 4, 5
MASK = torch.arange(T) < torch.tensor([[3], [6], [0], [1], [6]])
SOURCE = torch.arange(S) < torch.tensor([[4], [1], [3], [0], [2]])


def feeding(attention: layers.CrossAttention, cell: layers.SequenceLayer | None = None) -> layers.InputFeeding:
    cell = layers.FromContext(layers.LSTM(3 + 4, attention.d_in), D_MEMORY) if cell is None else cell
    return layers.InputFeeding(cell, layers.AttentionalLayer(attention, d_out=4)).double()


KINDS = {
    "dot": lambda: feeding(layers.DotAttention(5, 5)),
    "bilinear": lambda: feeding(layers.BilinearAttention(7, D_MEMORY)),
    "additive": lambda: feeding(layers.AdditiveAttention(7, D_MEMORY, d_attention=3)),
    "stack": lambda: feeding(
        layers.AdditiveAttention(6, D_MEMORY), layers.Stack([layers.GRU(7, 5), layers.LSTM(5, 6)])
    ),
}


def results(layer: layers.InputFeeding, mask: Tensor | None, *, twice: bool = False) -> list[Tensor]:
    """Return outputs, final state, and gradients by the input, the memory and every parameter."""
    torch.manual_seed(1)
    x = torch.randn(B, T, layer.d_in, dtype=torch.float64, requires_grad=True)
    h = torch.randn(B, S, D_MEMORY, dtype=torch.float64, requires_grad=True)
    y, final = layer(x, layer.init_state(B, Memory(h, SOURCE)), mask=mask)
    real = y if mask is None else y.masked_fill(~mask.unsqueeze(2), 0.0)
    outputs = [real, *(leaf for leaf in leaves((final.fed, final.inner)))]
    total = sum((part * torch.randn(part.shape, dtype=part.dtype)).sum() for part in outputs)
    assert isinstance(total, Tensor)
    sources = [x, h, *layer.parameters()]
    if twice:
        torch.autograd.grad(total, sources, retain_graph=True)
    return [*outputs, *torch.autograd.grad(total, sources)]


def assert_equals_fold(layer: layers.InputFeeding, execution: Execution, mask: Tensor | None, **options: bool) -> None:
    with executing("fold"):
        expected = results(layer, mask)
    with executing(execution), pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers.InputFeeding, "fold", None)  # must not be called
        computed = results(layer, mask, **options)
    torch.testing.assert_close(computed, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("execution", ["plain", pytest.param("compiled", marks=needs_compiler)])
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
def test_input_feeding_equals_its_fold(kind: str, execution: Execution, ragged: bool) -> None:
    torch.manual_seed(0)
    assert_equals_fold(KINDS[kind](), execution, MASK if ragged else None)


def test_backward_may_run_twice() -> None:
    assert_equals_fold(KINDS["additive"](), "plain", MASK, twice=True)


@pytest.mark.parametrize("execution", ["plain", pytest.param("compiled", marks=needs_compiler)])
@torch.no_grad()
def test_input_feeding_without_gradients_equals_its_fold(execution: Execution) -> None:
    """The initial state is that after a text, and rows share memories. Only two positions have buffers."""
    layer = KINDS["bilinear"]()
    rows = torch.tensor([1, 0, 0, 4, 2])
    x = torch.randn(B, T, layer.d_in, dtype=torch.float64)
    state = layer.init_state(B, Memory(torch.randn(B, S, D_MEMORY, dtype=torch.float64), SOURCE))
    _, middle = layer(x, select_rows(state, rows), mask=MASK)
    expected, final = layer.fold(x, middle, mask=MASK)
    with executing(execution):
        y, computed = layer(x, middle, mask=MASK)
    torch.testing.assert_close(y[MASK], expected[MASK])
    torch.testing.assert_close(list(leaves(computed)), list(leaves(final)))


def test_explain_names_the_execution_of_the_feedback() -> None:
    with executing("plain"):
        explanation = explain(KINDS["dot"]())
        assert explanation.startswith("in torch operations, position by position")
        assert explanation.endswith("; the feedback to its cell runs in torch operations")
        assert explain(feeding(layers.MultiHeadCrossAttention(6, D_MEMORY, num_heads=2))).startswith("step by step")
        assert explain(feeding(layers.DotAttention(5, 5, dropout=0.1)).train()).startswith("step by step")
        assert explain(feeding(layers.DotAttention(5, 5, dropout=0.1)).eval()) == explanation


@pytest.mark.sampled(1)
@pytest.mark.parametrize("elements", [1, 40, 10_000])
def test_additive_scores_do_not_depend_on_blocks(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", elements)
    q, k, v = (torch.randn(*sizes, dtype=torch.float64, requires_grad=True) for sizes in ((3, 5, 4), (3, 6, 4), (4,)))
    scores, expected = module.additive_scores(q, k, v), torch.tanh(q.unsqueeze(2) + k.unsqueeze(1)) @ v
    torch.testing.assert_close(scores, expected)
    error = torch.randn_like(scores)
    torch.testing.assert_close(*(torch.autograd.grad(part, [q, k, v], error) for part in (scores, expected)))
