"""A layer whose step is an argument, and its comparison with `fold`."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ensue.engine import Execution, executing, explain, unroll
from ensue.nn import Recurrent
from ensue.types import Memory, State, leaves

D = 5
B, T = 4, 3
MASK = torch.arange(T) < torch.tensor([[1], [3], [0], [2]])


class Pair(NamedTuple):
    a: Tensor
    b: Tensor


Step = Callable[["Written", Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""A function from (parameters, x, a, b) to (y, a', b')."""


class Written(Recurrent):
    """A layer whose step is an argument, with a matrix `W` and the vectors `v` and `u`."""

    def __init__(self, write: Step, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.d_in = self.d_out = D
        self.write = write
        generator = torch.Generator().manual_seed(0)
        self.W = nn.Parameter(torch.randn(D, D, generator=generator).to(dtype) / 2)
        self.v = nn.Parameter(torch.randn(D, generator=generator).to(dtype))
        self.u = nn.Parameter(torch.randn(D, generator=generator).to(dtype))

    def init_state(self, batch_size: int, memory: Memory | None = None) -> Pair:
        return Pair(self.v.new_zeros(batch_size, D), self.v.new_zeros(batch_size, D))

    def step(self, x_t: Tensor, state: State = None) -> tuple[Tensor, Pair]:
        a, b = self.init_state(len(x_t)) if state is None else state
        y, a, b = self.write(self, x_t, a, b)
        return y, Pair(a, b)


def outcome(
    layer: Written, *, engine: bool, mask: Tensor | None, of_zeros: bool = False, batch: int = B
) -> list[Tensor]:
    """Return outputs, final state, and the gradients by x, state and parameters."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(layer.v.dtype)

    x, a, b = (random(*shape).requires_grad_() for shape in ((batch, T, D), (batch, D), (batch, D)))
    state = Pair(*(torch.zeros_like(leaf).requires_grad_() for leaf in (a, b))) if of_zeros else Pair(a, b)
    unrolled = unroll(layer, x, state, mask) if engine else layer.fold(x, state, mask=mask)
    assert unrolled is not None, explain(layer)
    y, final = unrolled
    results = [y if mask is None else y.masked_fill(~mask.unsqueeze(-1), 0.0), *leaves(final)]
    total = sum(((result * random(*result.shape)).sum() for result in results), torch.zeros(()))
    sources = [x, *leaves(state), *layer.parameters()]
    return [*results, *torch.autograd.grad(total, sources, allow_unused=True, materialize_grads=True)]


def assert_equals_fold(
    write: Step, execution: Execution, *, dtype: torch.dtype = torch.float64, of_zeros: bool = False
) -> None:
    layer = Written(write, dtype)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    with executing(execution):
        for mask in (None, MASK):
            expected = outcome(layer, engine=False, mask=mask, of_zeros=of_zeros)
            results = outcome(layer, engine=True, mask=mask, of_zeros=of_zeros)
            torch.testing.assert_close(results, expected, rtol=tolerance, atol=tolerance)
