"""Attention with weights in bfloat16, without autocast, returns bfloat16 close to the results in float64."""

import pytest
import torch
from torch import nn

from ensue.models.modules import put_in_precision
from ensue.nn import CopyingHead, Rotary, SequenceLayer, SinusoidalPositions, SoftmaxHead
from ensue.testing.laws import MASK, B, T, inputs, mask_outputs, memory_of
from ensue.types import Memory, State
from laws.table import SUBJECTS

NAMES = (
    "attention rotary", "post-norm block both ways", "pre-norm decoder block", "dot attention", "bilinear attention",
    "additive attention", "attentional layer", "input feeding by heads",
)  # fmt: skip


def initial_state(layer: SequenceLayer, memory: Memory | None, dtype: torch.dtype) -> State:
    return None if memory is None else layer.init_state(B, memory._replace(values=memory.values.to(dtype)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NAMES)
def test_layers_in_bfloat16_are_close_to_float64(name: str) -> None:
    (subject,) = (subject for subject in SUBJECTS if subject.name == name)
    results = []
    for dtype in (torch.bfloat16, torch.float64):
        layer = subject.build().to(dtype)
        x = inputs(layer).to(dtype)
        y, final = layer(x, initial_state(layer, memory_of(layer), dtype), mask=MASK)
        outputs = [mask_outputs(y), *([layer.step(x[:, 0], final)[0]] if layer.is_causal else [])]
        assert {output.dtype for output in outputs} == {dtype}
        results.append(torch.cat([output.flatten() for output in outputs]).double())
    torch.testing.assert_close(*results, rtol=0.1, atol=0.1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["attention rotary", "post-norm block both ways", "pre-norm decoder block"])
def test_layers_with_products_in_bfloat16_are_close_to_float32(name: str) -> None:
    """Inputs of layers and outputs of blocks stay in float32."""
    (subject,) = (subject for subject in SUBJECTS if subject.name == name)
    layer, results = subject.build().eval(), []
    for change in (False, True):
        assert not change or put_in_precision(layer, "bfloat16")
        x = inputs(layer)
        with torch.no_grad():
            y, final = layer(x, initial_state(layer, memory_of(layer), x.dtype), mask=MASK)
            outputs = [mask_outputs(y), *([layer.step(x[:, 0], final)[0]] if layer.is_causal else [])]
        results.append(torch.cat([output.flatten() for output in outputs]).float())
    assert {module.weight.dtype for module in layer.modules() if isinstance(module, nn.Linear)} == {torch.bfloat16}
    assert not torch.equal(*results)
    torch.testing.assert_close(*results, rtol=0.05, atol=0.05)
    assert put_in_precision(nn.Sequential(nn.Linear(2, 2)), "bfloat16") is False


def test_the_copying_head_in_bfloat16_is_close_to_float32() -> None:
    """Scores and coverage are at least float32."""
    torch.manual_seed(0)
    head = CopyingHead(6, SoftmaxHead(6, 9), d_memory=5, coverage=True)
    s, values = torch.randn(B, T, 6), torch.randn(B, 4, 5)
    ids, targets = torch.randint(13, (B, 4)), torch.randint(9, (B, T))
    expected = head.nats(s, targets, head.init_state(B, Memory(values), ids))[0]
    head, s, values = head.bfloat16(), s.bfloat16(), values.bfloat16()
    state = head.init_state(B, Memory(values), ids)
    torch.testing.assert_close(head.nats(s, targets, state)[0], expected, rtol=0.02, atol=0.02)
    all_scores, _ = head(s, state)
    for t in range(T):
        scores, state = head.step(s[:, t], state)
        torch.testing.assert_close(scores, all_scores[:, t])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_positions_are_counted_in_float32(dtype: torch.dtype) -> None:
    """The angles are not rounded to the type: positions 256 and 257 differ."""
    positions, places = torch.arange(5000).unsqueeze(0), torch.zeros(1, 5000, 8)
    exact, half = SinusoidalPositions(8), SinusoidalPositions(8).to(dtype)
    torch.testing.assert_close(half(places.to(dtype))[0], exact(places)[0].to(dtype), rtol=0, atol=0)
    torch.testing.assert_close(half.float()(places)[0], exact(places)[0], rtol=0, atol=0)
    ones = torch.ones(1, 1, 5000, 8)
    exact_turned, turned = Rotary(8)(ones, positions), Rotary(8).to(dtype)(ones.to(dtype), positions)
    torch.testing.assert_close(turned.float(), exact_turned, rtol=0, atol=0.02)
    assert not torch.equal(turned[0, 0, 256, :2], turned[0, 0, 257, :2])
