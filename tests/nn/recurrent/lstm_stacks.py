"""What the tests of stacks of their own (depth-gated, grid) share: a problem, and the comparison with an oracle."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from ensue.nn import SequenceLayer
from ensue.types import State, leaves, map_state

D_IN, D, B, T = 3, 5, 4, 6
LENGTHS = [4, 6, 0, 3]

Module = TypeVar("Module", bound=nn.Module)
Layer = TypeVar("Layer", bound=SequenceLayer)


def randomized(layer: Module) -> Module:
    """In float64, every parameter far from where training begins."""
    torch.manual_seed(1)
    for parameter in layer.double().parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def random_state(layer: SequenceLayer) -> State:
    torch.manual_seed(9)
    return map_state(lambda leaf: torch.randn_like(leaf).requires_grad_(), layer.init_state(B))


def check(
    layer: Layer, written_out: Callable[[Layer, Tensor, State, list[int]], tuple[Tensor, list[Tensor]]], *, ragged: bool
) -> None:
    """Values, final states and all gradients are those of the oracle, a function of layer, x, state and lengths."""
    state = random_state(layer)
    x = torch.randn(B, T, D_IN, dtype=torch.float64, requires_grad=True)
    lengths = LENGTHS if ragged else [T] * B
    mask = torch.arange(T) < torch.tensor(lengths).unsqueeze(1)

    y, final = layer(x, state, mask=mask if ragged else None)
    results = [y * mask.unsqueeze(-1), *leaves(final)]
    y_expected, final_expected = written_out(layer, x, state, lengths)
    expected = [y_expected, *final_expected]
    torch.testing.assert_close(results, expected, rtol=1e-9, atol=1e-9)

    weights = [torch.randn_like(result) for result in results]
    sources = [x, *leaves(state), *layer.parameters()]
    found = torch.autograd.grad(results, sources, weights)
    torch.testing.assert_close(found, torch.autograd.grad(expected, sources, weights), rtol=1e-9, atol=1e-9)
