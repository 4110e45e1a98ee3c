"""Steps that cannot be traced, or are too deep, run step by step."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from engine.twins import needs_compiler
from engine.written_steps import MASK, B, D, Pair, Step, T, Written
from ensue.engine import explain
from ensue.types import Memory, State, leaves


class Counting(Written):
    """A step with a counter: its state has integers."""

    def init_state(self, batch_size: int, memory: Memory | None = None) -> Pair:
        return Pair(self.v.new_zeros(batch_size, D), torch.zeros(batch_size, dtype=torch.int64))

    def step(self, x_t: Tensor, state: State = None) -> tuple[Tensor, Pair]:
        a, clock = self.init_state(len(x_t)) if state is None else state
        a = torch.tanh(a + x_t * (clock % 2).unsqueeze(1))
        return a, Pair(a, clock + 1)


class Single(Written):
    """A step whose state changes its type."""

    def step(self, x_t: Tensor, state: State = None) -> tuple[Tensor, State]:
        a, b = self.init_state(len(x_t)) if state is None else state
        return a + x_t, (a + x_t, b)


UNTRACEABLE: dict[str, tuple[Step, str]] = {
    "random numbers": (lambda p, x, a, b: (a, a + x + torch.rand_like(a), b), "rand_like"),
    "random numbers beside x": (lambda p, x, a, b: (a, a + x + torch.rand_like(x), b), "rand_like"),
    "random numbers beside weights": (lambda p, x, a, b: (a, a + x + torch.rand_like(p.v), b), "rand_like"),
    "in place": (lambda p, x, a, b: (a, (a * 2).add_(x), b), "in place"),
    "in place, of x": (lambda p, x, a, b: (a, a + (x * 2).add_(1), b), "in place"),
    "across rows": (lambda p, x, a, b: (a, a - a.mean(0) + x, b), ""),
    "across rows of x": (lambda p, x, a, b: (a, a + x - x.mean(0), b), ""),
    "across rows of x, with their dimension": (lambda p, x, a, b: (a, a + x - x.mean(0, keepdim=True), b), ""),
    "rows the other way round": (lambda p, x, a, b: (a, a.flip(0) + x, b), "flip"),
    "rows of x the other way round": (lambda p, x, a, b: (a, a + x.flip(0), b), ""),
    "sorted rows of x": (lambda p, x, a, b: (a, a + x.sort(0).values, b), ""),
    "the sum of all": (lambda p, x, a, b: (a, a + x + 0.1 * (a * b).sum(), b), ""),
    "the number of rows, of a": (lambda p, x, a, b: (a, a / len(a) + x, b), "rows"),
    "the number of rows, of x": (lambda p, x, a, b: (a, a + x / len(a), b), "rows"),
    "the number of rows, of a shape": (lambda p, x, a, b: (a, a + x + torch.ones(len(a), D).to(a.dtype), b), "rows"),
    "an unknown function": (lambda p, x, a, b: (a, torch.atan(a) + x, b), "atan"),
    "a product of two states": (lambda p, x, a, b: (a, a @ a.t() @ a * 0.1 + x, b), ""),
    "another rounding": (lambda p, x, a, b: (a, torch.div(a, 0.3, rounding_mode="floor") + x, b), "div"),
    "a power of a number": (lambda p, x, a, b: (a, torch.pow(2.0, a) + x, b), "pow"),
    "another type": (lambda p, x, a, b: (a, a + (x + a).float().double(), b), "type"),
    "the bits of x": (lambda p, x, a, b: (a, torch.where(x.view(torch.int64) > 5, a, x), b), "type"),
    "a vector for each row": (lambda p, x, a, b: (a, a + x + p.v.expand(len(x), -1), b), "each row"),
    "a vector for each row, beside a": (
        lambda p, x, a, b: (a, a + torch.cat((p.v.expand(len(x), -1), x), 1)[:, D:], b),
        "",
    ),
    "x in another type": (lambda p, x, a, b: (a, torch.tanh(a + x.float() * 0.5), b), ""),
}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", UNTRACEABLE)
def test_an_untraceable_step_runs_step_by_step(name: str) -> None:
    write, reason = UNTRACEABLE[name]
    assert_runs_step_by_step(Written(write), reason)


class Reversed(torch.autograd.Function):
    """The identity, with its gradient negated."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: object, error: Tensor) -> Tensor:  # type: ignore[override]
        return -error


def clipped(x: Tensor) -> Tensor:
    x = x * 1
    if x.requires_grad:
        x.register_hook(lambda error: error.clamp(-0.1, 0.1))
    return x


@pytest.mark.parametrize(("change", "reason"), [(Reversed.apply, "Reversed"), (clipped, "a hook")])
def test_a_step_that_changes_gradients_runs_step_by_step(change: Callable[[Tensor], Tensor], reason: str) -> None:
    layer = Written(lambda p, x, a, b: (x + a, torch.tanh(change(a) @ p.W + x), b))
    assert_runs_step_by_step(layer, reason)
    x = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    gradient, expected = (torch.autograd.grad(call(x)[0].sum(), x)[0] for call in (layer, layer.fold))
    torch.testing.assert_close(gradient, expected)


def test_a_layer_that_is_made_in_inference_mode_is_traced() -> None:
    with torch.inference_mode():
        layer = Written(lambda p, x, a, b: (x + a, torch.tanh(a @ p.W + x), b))
        assert not explain(layer).startswith("step by step")
        x = torch.randn(B, T, D, dtype=torch.float64)
        torch.testing.assert_close(layer(x)[0], layer.fold(x)[0])


@pytest.mark.parametrize(("kind", "reason"), [(Counting, "floating-point numbers"), (Single, "shape")])
def test_an_untraceable_state_runs_step_by_step(kind: type[Written], reason: str) -> None:
    assert_runs_step_by_step(kind(lambda p, x, a, b: (x, a, b)), reason)


def assert_runs_step_by_step(layer: Written, reason: str) -> None:
    """Assert that the results equal those of `fold`. Without a reason, the layer may also run otherwise."""
    layer.double()
    x = torch.randn(B, T, D, dtype=torch.float64)
    for mask in (None, MASK):
        torch.manual_seed(0)
        expected, expected_state = layer.fold(x, mask=mask)
        explain(layer)
        torch.manual_seed(0)
        y, state = layer(x, mask=mask)
        is_read = torch.ones(B, T, dtype=torch.bool) if mask is None else mask
        torch.testing.assert_close(y[is_read], expected[is_read])
        torch.testing.assert_close(list(leaves(state)), list(leaves(expected_state)))
    if reason:
        assert explain(layer).startswith("step by step under autograd")
        assert reason in explain(layer)


class ManyVectors(Written):
    """A step with 300 vectors, in a chain of operations or in a sum."""

    def __init__(self, *, is_deep: bool) -> None:
        super().__init__(lambda p, x, a, b: (x, a, b))
        self.is_deep = is_deep
        self.more = nn.ParameterList(nn.Parameter(torch.randn(D).double()) for _ in range(300))

    def step(self, x_t: Tensor, state: State = None) -> tuple[Tensor, Pair]:
        a, b = self.init_state(len(x_t)) if state is None else state
        h = a + x_t
        if self.is_deep:
            for vector in self.more:
                h = torch.tanh(h * vector)
            return h, Pair(h, b)
        parts = [h * vector for vector in self.more]
        while len(parts) > 1:
            parts = [sum(parts[k : k + 2]) for k in range(0, len(parts), 2)]
        h = torch.tanh(parts[0])
        return h, Pair(h, b)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("is_deep", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_step_with_a_very_long_chain_of_operations_runs_step_by_step(is_deep: bool) -> None:
    layer = ManyVectors(is_deep=is_deep)
    with torch.no_grad():
        assert (explain(layer) == "compiled") is not is_deep
        x = torch.randn(B, T, D, dtype=torch.float64)
        torch.testing.assert_close(layer(x)[0], layer.fold(x)[0])
