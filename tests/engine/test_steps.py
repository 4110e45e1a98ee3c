"""Steps of every kind through the engine, against `fold`, and steps that cannot be traced."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from engine.twins import needs_compiler
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
"""From (parameters, x, a, b) to (y, a', b')."""


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


def everything(
    layer: Written, *, engine: bool, mask: Tensor | None, of_zeros: bool = False, batch: int = B
) -> list[Tensor]:
    """Outputs, final state, and the gradients by x, state and parameters."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(layer.v.dtype)

    x, a, b = (random(*shape).requires_grad_() for shape in ((batch, T, D), (batch, D), (batch, D)))
    state = Pair(*(torch.zeros_like(leaf).requires_grad_() for leaf in (a, b))) if of_zeros else Pair(a, b)
    found = unroll(layer, x, state, mask) if engine else layer.fold(x, state, mask=mask)
    assert found is not None, explain(layer)
    y, final = found
    results = [y if mask is None else y.masked_fill(~mask.unsqueeze(-1), 0.0), *leaves(final)]
    total = sum(((result * random(*result.shape)).sum() for result in results), torch.zeros(()))
    sources = [x, *leaves(state), *layer.parameters()]
    return [*results, *torch.autograd.grad(total, sources, allow_unused=True, materialize_grads=True)]


def check(write: Step, execution: Execution, *, dtype: torch.dtype = torch.float64, of_zeros: bool = False) -> None:
    layer = Written(write, dtype)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    with executing(execution):
        for mask in (None, MASK):
            expected = everything(layer, engine=False, mask=mask, of_zeros=of_zeros)
            found = everything(layer, engine=True, mask=mask, of_zeros=of_zeros)
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def normalized(a: Tensor) -> Tensor:
    return F.layer_norm(a, (D,))


STEPS: dict[str, Step] = {
    # An error that goes where another is still to be read.
    "states change places": lambda p, x, a, b: (x * 1.0, b, a),
    "a state moves on": lambda p, x, a, b: (x * 1.0, b + x, torch.tanh(a)),
    "and the other through a sum": lambda p, x, a, b: (x * a, b, p.v * normalized(b) + a),
    "and is read late": lambda p, x, a, b: (x * 1.0, p.v * normalized(x @ p.W), a + torch.tanh(b)),
    "a shift register": lambda p, x, a, b: (x + b, torch.tanh(b @ p.W + x), a),
    # Results that are given, or one another, or the same for all rows.
    "two products with x, of which one is kept": lambda p, x, a, b: (
        x * 1.0,
        torch.tanh(x @ p.W),
        torch.sin(x @ p.W.t()),
    ),
    "all results are x": lambda p, x, a, b: (x, x, x),
    "states stay": lambda p, x, a, b: (a * b, a, b),
    "two states are one": lambda p, x, a, b: (a, torch.tanh(a + x), torch.tanh(a + x)),
    "the output is a state": lambda p, x, a, b: (h := torch.tanh(x + a @ p.W), h, h * b),
    "no row differs": lambda p, x, a, b: (p.v * torch.ones_like(a), torch.zeros_like(a), p.u + a * 0),
    "a state is stopped": lambda p, x, a, b: (a, torch.tanh(a.detach() * p.v + x), b * a.detach()),
    # Sums over features, at every depth.
    "sums": lambda p, x, a, b: (a * (x * b).sum(-1, keepdim=True), a * 0.1 + b.mean(-1, keepdim=True) * x, b),
    "a sum that all features read": lambda p, x, a, b: (
        a,
        torch.tanh(a @ p.W + x * (a * b).sum(-1, keepdim=True)),
        torch.tanh(b + (a @ p.W).mean(-1, keepdim=True)),
    ),
    "norms of norms": lambda p, x, a, b: (
        a,
        torch.tanh(b @ p.W) + x,
        torch.tanh(p.v * normalized(x + a @ p.W)) + b + normalized(normalized(a @ p.W) * p.u + b),
    ),
    # Features side by side.
    "pieces of two, multiplied": lambda p, x, a, b: (a, torch.tanh(torch.cat((a[:, 2:], x[:, :2]), 1) @ p.W), b),
    "pieces of two, added": lambda p, x, a, b: (a, x + torch.cat((b[:, :1], a[:, :4]), 1), b),
    "features move on": lambda p, x, a, b: (a, torch.tanh(x + a), torch.cat((b[:, 1:], x[:, :1]), -1)),
    "pieces of results": lambda p, x, a, b: (
        a,
        torch.cat((torch.tanh(a)[:, :2], torch.sigmoid(x @ p.W)[:, 2:]), 1),
        torch.cat(torch.tanh(a @ p.W + b).split([4, 1], 1)[::-1], 1),
    ),
    # Parameters that are not read as they stand.
    "a column of a matrix": lambda p, x, a, b: (a, torch.tanh(a * p.W[:, 0] + x), b),
    "one number of a vector": lambda p, x, a, b: (a, torch.tanh(a * p.v.sum() + x * p.v[0]), b),
    "a matrix of parameters": lambda p, x, a, b: (a, torch.tanh(a @ (p.W * p.v) + x @ p.W.flip(1)), b),
    "one matrix everywhere": lambda p, x, a, b: (
        a,
        torch.tanh(a @ p.W + b @ p.W.t() + x @ p.W + (x * p.v) @ p.W + (a * b) @ p.W),
        b * 0.1 + a,
    ),
    "numbers by a condition": lambda p, x, a, b: (
        a,
        torch.tanh(torch.where(a > 0.1, torch.ones_like(a), -1.0) + a + x),
        b,
    ),
    "a number by a condition": lambda p, x, a, b: (a, torch.tanh(torch.where(a > 0.1, a, 0.5) @ p.W + x), b),
    "a product of a parameter": lambda p, x, a, b: (a + (p.v + 0 * a) @ p.W, x, b),
    "a parameter beside a state": lambda p, x, a, b: (a, x, torch.cat((b[:, 3:], (p.v + 0 * a)[:, :3]), -1)),
    "sums of numbers": lambda p, x, a, b: (a + torch.full_like(a, 0.3).sum(-1, keepdim=True), x, b),
    "numbers side by side": lambda p, x, a, b: (a, x, torch.cat((b * 0.5, torch.full_like(a, 0.3)), -1)[:, 2:7]),
    "a product of numbers": lambda p, x, a, b: (a, torch.full_like(a, 0.3) @ p.W + x, b),
    # Operations that are written with others.
    "activations": lambda p, x, a, b: (
        a,
        F.gelu(a) + F.gelu(b, approximate="tanh") + F.silu(a) + F.leaky_relu(a, 0.2) + F.hardtanh(a) + F.softplus(x),
        F.softplus(a, beta=2, threshold=1) + a.clamp(-0.5, 0.5) + b.clamp(min=0.1) + x.clamp(max=0.1),
    ),
    "powers": lambda p, x, a, b: (
        a,
        (a * a + 1) ** 0.5 + (a * a + 1) ** -0.5 + a**2 + b**3 + 1 / (a * a + 1) + (b * b + 1).reciprocal() + x,
        torch.square(a) + 2 - a + torch.rsub(a, b, alpha=2) + torch.add(a, b, alpha=3) * 0.1,
    ),
}  # fmt: skip


COMPILED = (
    "and is read late", "all results are x", "a sum that all features read", "norms of norms", "pieces of two, added",
    "features move on", "a column of a matrix", "one matrix everywhere", "numbers by a condition", "activations",
)  # fmt: skip
"""By default, since each takes a compile; the others with the `slow` tests."""


@pytest.mark.parametrize("name", STEPS)
def test_steps_in_torch_operations(name: str) -> None:
    check(STEPS[name], "plain")


@needs_compiler
@pytest.mark.parametrize("name", [n if n in COMPILED else pytest.param(n, marks=pytest.mark.slow) for n in STEPS])
def test_steps_compiled(name: str) -> None:
    check(STEPS[name], "compiled")


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", STEPS)
def test_steps_compiled_in_single_precision(name: str) -> None:
    check(STEPS[name], "compiled", dtype=torch.float32)


Leaf = Callable[[Written, Tensor, Tensor, Tensor], Tensor]
LEAVES: dict[str, Leaf] = {
    "x": lambda p, x, a, b: x,
    "a": lambda p, x, a, b: a,
    "b": lambda p, x, a, b: b,
    "v": lambda p, x, a, b: p.v + 0 * a,
    "0.3": lambda p, x, a, b: torch.full_like(a, 0.3),
}
UNARY: dict[str, Callable[[Written, Tensor], Tensor]] = {
    "tanh": lambda p, e: torch.tanh(e),
    "sigmoid": lambda p, e: torch.sigmoid(e),
    "relu": lambda p, e: torch.relu(e),
    "sin": lambda p, e: torch.sin(e),
    "exp": lambda p, e: torch.exp(torch.tanh(e)),
    "log": lambda p, e: torch.log(2 + torch.sin(e)),
    "sqrt": lambda p, e: torch.sqrt(2 + torch.sin(e)),
    "rsqrt": lambda p, e: torch.rsqrt(2 + torch.sin(e)),
    "erf": lambda p, e: torch.erf(e),
    "softplus": lambda p, e: F.softplus(e),
    "minus": lambda p, e: 1 - e,
    "W": lambda p, e: e @ p.W,
    "W.t": lambda p, e: F.linear(e, p.W, p.u),
    "norm": lambda p, e: F.layer_norm(e, (D,), p.v, p.u),
    "sum": lambda p, e: p.u * e.sum(-1, keepdim=True),
    "mean": lambda p, e: e - e.mean(-1, keepdim=True),
    "u": lambda p, e: e * p.u,
    "roll": lambda p, e: torch.cat((e[:, 2:], e[:, :2]), -1),
    "halves": lambda p, e: torch.cat((e, -e), -1).split([3, D + 1, 1], -1)[1][:, 1:],
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda e, f: e / (2 + torch.sin(f)),
    "max": torch.maximum,
    "min": torch.minimum,
    "cat": lambda e, f: torch.cat((e[:, 3:], f[:, :3]), -1),
    "dot": lambda e, f: e * (e * f).sum(-1, keepdim=True),
}


def grown(tree: object, *args: object) -> Tensor:
    """A tree of names, as the expression that it stands for."""
    if isinstance(tree, str):
        return LEAVES[tree](*args)  # type: ignore[arg-type]
    name, *parts = tree  # type: ignore[misc]
    values = [grown(part, *args) for part in parts]
    if name == "where":
        return torch.where(values[0] > values[1], values[2], values[3])
    return UNARY[name](args[0], *values) if name in UNARY else BINARY[name](*values)  # type: ignore[arg-type]


leaf = st.sampled_from(sorted(LEAVES))
trees = st.recursive(
    leaf,
    lambda parts: (
        st.tuples(st.sampled_from(sorted(UNARY)), parts)
        | st.tuples(st.sampled_from(sorted(BINARY)), parts, parts)
        | st.tuples(
            st.just("where"), leaf, leaf, parts, parts
        )  # what is compared is no result: rounding may not choose
    ),
    max_leaves=8,
)


def written(y: object, a: object, b: object) -> Step:
    return lambda *args: (grown(y, *args), torch.tanh(grown(a, *args)), torch.sin(grown(b, *args)))


@settings(max_examples=15, derandomize=True)
@given(trees, trees, trees)
def test_random_steps(y: object, a: object, b: object) -> None:
    check_loosely(written(y, a, b), "plain")


@pytest.mark.slow
@given(trees, trees, trees)
def test_many_random_steps(y: object, a: object, b: object) -> None:
    check_loosely(written(y, a, b), "plain")


@pytest.mark.slow
@needs_compiler
@given(trees, trees, trees)
def test_random_steps_compiled(y: object, a: object, b: object) -> None:
    check_loosely(written(y, a, b), "compiled")


def check_loosely(write: Step, execution: Execution) -> None:
    """A random step may add up large numbers that nearly cancel: relative to the largest of all."""
    layer = Written(write)
    expected = everything(layer, engine=False, mask=MASK)
    with executing(execution):
        found = everything(layer, engine=True, mask=MASK)
    scale = max(1.0, *(part.abs().max().item() for part in expected))
    for a, b in zip(found, expected, strict=True):
        assert (a - b).abs().max().item() <= 1e-9 * scale


# At a kink torch has a slope of its own; from a state of zeros it is met at the first position.
KINKS: dict[str, Step] = {
    "relu": lambda p, x, a, b: (a, torch.relu(a) + x, b),
    "abs": lambda p, x, a, b: (a, a.abs() + x, b),
    "softplus": lambda p, x, a, b: (a, F.softplus(a) + x, b),
    "maximum": lambda p, x, a, b: (a, torch.maximum(a, b) + x, a),
    "minimum": lambda p, x, a, b: (a, torch.minimum(a, b) + x, a),
    "clamp": lambda p, x, a, b: (a, a.clamp(min=0) + 2 * b.clamp(max=0) + x, b),
    "hardtanh": lambda p, x, a, b: (a, F.hardtanh(a, 0.0, 1.0) + x, b),
    "leaky relu": lambda p, x, a, b: (a, F.leaky_relu(a, 0.2) + x, b),
}


@pytest.mark.parametrize("name", KINKS)
def test_slopes_at_kinks_are_those_of_torch(name: str) -> None:
    check(KINKS[name], "plain", of_zeros=True)


class Counting(Written):
    """A step that counts: its state is of integers."""

    def init_state(self, batch_size: int, memory: Memory | None = None) -> Pair:
        return Pair(self.v.new_zeros(batch_size, D), torch.zeros(batch_size, dtype=torch.int64))

    def step(self, x_t: Tensor, state: State = None) -> tuple[Tensor, Pair]:
        a, clock = self.init_state(len(x_t)) if state is None else state
        a = torch.tanh(a + x_t * (clock % 2).unsqueeze(1))
        return a, Pair(a, clock + 1)


class Single(Written):
    """A step whose state becomes another kind of thing."""

    def step(self, x_t: Tensor, state: State = None) -> tuple[Tensor, State]:
        a, b = self.init_state(len(x_t)) if state is None else state
        return a + x_t, (a + x_t, b)


BEYOND: dict[str, tuple[Step, str]] = {
    "random numbers": (lambda p, x, a, b: (a, a + x + torch.rand_like(a), b), "rand_like"),
    "random numbers beside x": (lambda p, x, a, b: (a, a + x + torch.rand_like(x), b), "rand_like"),
    "random numbers beside weights": (lambda p, x, a, b: (a, a + x + torch.rand_like(p.v), b), "rand_like"),
    "in place": (lambda p, x, a, b: (a, (a * 2).add_(x), b), "in place"),
    "in place, of x": (lambda p, x, a, b: (a, a + (x * 2).add_(1), b), "in place"),
    "across rows": (lambda p, x, a, b: (a, a - a.mean(0) + x, b), ""),
    "across rows of x": (lambda p, x, a, b: (a, a + x - x.mean(0), b), ""),
    "across rows of x, kept": (lambda p, x, a, b: (a, a + x - x.mean(0, keepdim=True), b), ""),
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
    "x in another type": (lambda p, x, a, b: (a, torch.tanh(a + x.float() * 0.5), b), ""),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_cannot_be_traced_runs_step_by_step(name: str) -> None:
    write, reason = BEYOND[name]
    check_falls_back(Written(write), reason)


@pytest.mark.parametrize(("kind", "reason"), [(Counting, "real numbers"), (Single, "shape")])
def test_states_that_cannot_be_traced(kind: type[Written], reason: str) -> None:
    check_falls_back(kind(lambda p, x, a, b: (x, a, b)), reason)


def check_falls_back(layer: Written, reason: str) -> None:
    """The results are those of `fold`; a reason is only promised where there is no other way to run the layer."""
    layer.double()
    x = torch.randn(B, T, D, dtype=torch.float64)
    for mask in (None, MASK):
        torch.manual_seed(0)
        expected, expected_state = layer.fold(x, mask=mask)
        explain(layer)
        torch.manual_seed(0)
        y, state = layer(x, mask=mask)
        where = torch.ones(B, T, dtype=torch.bool) if mask is None else mask
        torch.testing.assert_close(y[where], expected[where])
        torch.testing.assert_close(list(leaves(state)), list(leaves(expected_state)))
    if reason:
        assert explain(layer).startswith("step by step under autograd")
        assert reason in explain(layer)


class Many(Written):
    """A step with 300 vectors, which meet one after another or side by side."""

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


@needs_compiler
@pytest.mark.parametrize("is_deep", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_step_of_very_many_parts(is_deep: bool) -> None:
    """Where one operation follows another too often for the engine, it runs step by step."""
    layer = Many(is_deep=is_deep)
    with torch.no_grad():
        assert (explain(layer) == "compiled") is not is_deep
        x = torch.randn(B, T, D, dtype=torch.float64)
        torch.testing.assert_close(layer(x)[0], layer.fold(x)[0])
