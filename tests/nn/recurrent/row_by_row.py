"""A problem, a loop over rows and positions, and the comparison for tests of layers against their equations."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from ensue.nn import SequenceLayer
from ensue.types import State, leaves, map_state

D_IN, D, B, T = 3, 5, 4, 6
LENGTHS = [4, 6, 0, 3]
MASK = torch.arange(T) < torch.tensor(LENGTHS).unsqueeze(1)

Module = TypeVar("Module", bound=nn.Module)
Layer = TypeVar("Layer", bound=SequenceLayer)
Found = tuple[Tensor, list[Tensor]]
Step = Callable[[Tensor, list[Tensor], tuple[int, int]], tuple[Tensor, Sequence[Tensor]]]
"""A function of x at a position, the leaves of a row's state, and (row, position) to the output and the next leaves."""


def randomized(layer: Module) -> Module:
    """Return the layer in float64 with random parameters far from their initialization."""
    torch.manual_seed(1)
    for parameter in layer.double().parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def started(layer: SequenceLayer) -> tuple[Tensor, State]:
    """Return inputs and a random state."""
    torch.manual_seed(9)
    state = map_state(lambda leaf: torch.randn_like(leaf).requires_grad_(), layer.init_state(B))
    return torch.randn(B, T, D_IN, dtype=torch.float64, requires_grad=True), state


def row_by_row(step: Step, x: Tensor, state: State, lengths: list[int]) -> Found:
    """Return outputs with zeros at padding, and the leaves of the state after each row's last position."""
    rows = []
    for row, length in enumerate(lengths):
        old, outputs = [leaf[row] for leaf in leaves(state)], [torch.zeros(D, dtype=x.dtype)] * x.shape[1]
        for t in range(length):
            outputs[t], old = step(x[row, t], old, (row, t))  # type: ignore[assignment]
        rows.append([torch.stack(outputs), *old])
    y, *final = (torch.stack(part) for part in zip(*rows, strict=True))
    return y, final


def compare(results: list[Tensor], expected: list[Tensor], sources: list[Tensor], *, unused: bool = False) -> None:
    """Compare values, and gradients of a sum with random weights; with `unused`, missing gradients are zeros."""
    torch.testing.assert_close(results, expected, rtol=1e-9, atol=1e-9)
    weights = [torch.randn_like(result) for result in results]
    gradients, expected_gradients = (
        torch.autograd.grad(tensors, sources, weights, allow_unused=unused, materialize_grads=unused)
        for tensors in (results, expected)
    )
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-9, atol=1e-9)


def check(
    layer: Layer, written_out: Callable[[Layer, Tensor, State, list[int]], Found], *, ragged: bool, run: str = "forward"
) -> None:
    """Compare outputs, final states and all gradients with the oracle, a function of layer, x, state and lengths."""
    x, state = started(layer)
    lengths, mask = (LENGTHS, MASK) if ragged else ([T] * B, torch.ones_like(MASK))

    torch.manual_seed(1)
    y, final = getattr(layer, run)(x, state, mask=mask if ragged else None)
    results = [y * mask.unsqueeze(-1), *leaves(final)]
    y_expected, final_expected = written_out(layer, x, state, lengths)
    expected = [y_expected, *final_expected]
    compare(results, expected, [x, *leaves(state), *layer.parameters()])
