"""The parts of the engine: steps of every kind against `fold`, each operation, what cannot be traced, and memory."""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ensue.nn import LSTM, LayerNormLSTM, Recurrent
from ensue.nn.engine import Execution, executing, explain, unroll
from ensue.nn.engine.c_library import compiler, library
from ensue.nn.engine.execution import Runner, Values
from ensue.nn.engine.graph import Graph, Node
from ensue.nn.engine.operations import OPERATIONS
from ensue.nn.engine.plain import Plain
from ensue.nn.engine.program import Array, build
from ensue.nn.engine.rows import Rows
from ensue.nn.engine.schedule import schedule
from ensue.nn.engine.storage import Storage
from ensue.nn.engine.trace import trace
from ensue.types import Memory, State, leaves

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler")

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
@settings(max_examples=200)
@given(trees, trees, trees)
def test_many_random_steps(y: object, a: object, b: object) -> None:
    check_loosely(written(y, a, b), "plain")


@pytest.mark.slow
@needs_compiler
@settings(max_examples=60)
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


RANGES = dict.fromkeys(("log", "sqrt", "rsqrt"), (0.1, 3.0))
COMPARED = {name for name, row in OPERATIONS.items() if row.is_condition}
LOGICAL = {"and", "or", "not"}
ARGUMENTS = {name: len({place for place in (0, 1, 2) if f"{{{place}}}" in row.c}) for name, row in OPERATIONS.items()}


def points(name: str) -> list[Tensor]:
    """Arguments of an operation, (1, 400) each, away from its kinks; where things are compared, some are equal."""
    low, high = RANGES.get(name, (-3.0, 3.0))
    generator = torch.Generator().manual_seed(0)
    found = [low + (high - low) * torch.rand(1, 400, generator=generator, dtype=torch.float64) for _ in range(3)]
    if name in COMPARED:
        found[0][:, ::3] = found[1][:, ::3]
    if name in LOGICAL:
        found = [(part > 0).to(part.dtype) for part in found]
    if name == "where":
        found[0] = (found[0] > 0).to(torch.float64)
    return found[: ARGUMENTS[name]]


@needs_compiler
def test_operations_in_c_are_those_of_torch() -> None:
    """All of them in one file."""
    text = "".join(
        f"void try_{name}(const real *a, const real *b, const real *c, real *y) {{\n"
        f"    for (int64_t j = 0; j < 400; j++) y[j] = {row.c.format('a[j]', 'b[j]', 'c[j]')};\n}}\n"
        for name, row in OPERATIONS.items()
    )
    functions = library(text, torch.float64)
    assert functions is not None
    for name, row in OPERATIONS.items():
        given_points = points(name)
        found = torch.full((1, 400), torch.nan, dtype=torch.float64)
        addresses = [ctypes.c_void_p(part.data_ptr()) for part in given_points]
        getattr(functions, f"try_{name}")(*(addresses * 3)[:3], ctypes.c_void_p(found.data_ptr()))
        if name == "where":
            given_points[0] = given_points[0] > 0
        torch.testing.assert_close(found, row.plain(*given_points).to(found.dtype), rtol=1e-13, atol=1e-13, msg=name)


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - COMPARED - {"stop", "where"}))
def test_derivatives_are_finite_differences(name: str) -> None:
    given_points = points(name)
    graph = Graph()
    nodes = [graph.node("state", width=400, number=place) for place in range(len(given_points))]
    y = graph.pointwise(name, *nodes)
    g = graph.node("error", width=400)
    derivatives = OPERATIONS[name].derivative(y, g)
    error = torch.linspace(-1, 2, 400, dtype=torch.float64).unsqueeze(0)
    step = 1e-6
    for place, derivative in enumerate(derivatives):
        moved = [[*given_points] for _ in range(2)]
        for way, side in zip((-1, 1), moved, strict=True):
            side[place] = side[place] + way * step
        lower, upper = (OPERATIONS[name].plain(*side) for side in moved)
        assert derivative is not None
        values = {**dict(zip(nodes, given_points, strict=True)), g: error}
        torch.testing.assert_close(
            value(derivative, values), error * (upper - lower) / (2 * step), rtol=1e-6, atol=1e-8
        )


def value(node: Node, values: dict[Node, Tensor]) -> Tensor:
    """A graph of pointwise operations, worked out."""
    if node in values:
        return values[node]
    if node.op == "constant":
        return torch.full((1, 1), node.number, dtype=torch.float64)
    values[node] = OPERATIONS[node.op].plain(*(value(arg, values) for arg in node.args))
    return values[node]


def test_no_error_goes_through_a_stop_or_to_a_condition() -> None:
    graph = Graph()
    a, b, g = (graph.node("state", width=3, number=place) for place in range(3))
    assert OPERATIONS["stop"].derivative(graph.pointwise("stop", a), g) == (None,)
    assert OPERATIONS["where"].derivative(graph.pointwise("where", a, b, g), g)[0] is None
    for name, row in OPERATIONS.items():
        if row.is_condition:
            arguments = [a] * ARGUMENTS[name]
            assert row.derivative(graph.pointwise(name, *arguments), g) == (None,) * len(arguments)


def test_the_error_at_a_choice_goes_where_the_value_came_from() -> None:
    condition, a, b = points("where")
    graph = Graph()
    nodes = [graph.node("state", width=400, number=place) for place in range(3)]
    g = graph.node("error", width=400)
    _, to_a, to_b = OPERATIONS["where"].derivative(graph.pointwise("where", *nodes), g)
    values = {nodes[0]: condition > 0, nodes[1]: a, nodes[2]: b, g: torch.ones_like(a)}
    assert to_a is not None
    assert to_b is not None
    assert torch.equal(value(to_a, values).double(), condition)
    assert torch.equal(value(to_b, values).double(), 1 - condition)


class TestGraph:
    """Nodes that are written alike are one node; what need not be worked out is not there."""

    def setup_method(self) -> None:
        self.graph = Graph()
        self.a, self.b = (self.graph.node("state", width=4, number=place) for place in (0, 1))

    def test_alike_is_one(self) -> None:
        assert self.a + self.b is self.a + self.b
        assert self.a + self.b is not self.a - self.b
        assert self.graph.product(self.a, 0, 3) is self.graph.product(self.a, 0, 3)
        assert self.graph.product(self.a, 0, 3) is not self.graph.product(self.a, 0, 3, transposed=True)

    def test_nothing_is_done_with_0_and_1(self) -> None:
        zeros = self.graph.constant(0, 4)
        assert self.a + 0 is self.a
        assert self.a - 0 is self.a
        assert self.a * 1 is self.a
        assert self.a / 1 is self.a
        assert self.a * 0 is zeros
        assert self.graph.product(zeros, 0, 3) is self.graph.constant(0, 3)
        assert self.graph.node("state", width=1, number=2) + zeros is not self.graph.node("state", width=1, number=2)

    def test_a_slice_is_taken_of_what_a_value_is_made_of(self) -> None:
        both = self.graph.cat([self.a, self.b])
        assert self.graph.slice(both, 4, 4) is self.b
        assert self.graph.slice(both, 3, 2) is self.graph.cat(
            [self.graph.slice(self.a, 3, 1), self.graph.slice(self.b, 0, 1)]
        )
        assert self.graph.slice(self.graph.slice(self.a, 1, 3), 1, 2) is self.graph.slice(self.a, 2, 2)
        assert self.graph.slice(self.a + self.b, 1, 2) is self.graph.slice(self.a, 1, 2) + self.graph.slice(
            self.b, 1, 2
        )
        assert self.graph.cat([self.a]) is self.a


def test_rows_without_their_padding() -> None:
    """Packed, sorted, and back, against loops."""
    lengths = [2, 0, 4, 4, 1, 3]
    mask = torch.arange(5) < torch.tensor(lengths).unsqueeze(1)
    x = torch.randn(6, 5, 3)
    rows = Rows.of(x, mask)
    order = sorted(range(6), key=lambda row: -lengths[row])  # stable
    places = [(row, t) for t in range(5) for row in order if t < lengths[row]]
    packed = torch.stack([x[place] for place in places])
    assert rows.size == sum(lengths)
    assert rows.counts.tolist() == [5, 4, 3, 2]
    assert torch.equal(rows.packed(x), packed)
    assert torch.equal(rows.padded_again(packed), x.masked_fill(~mask.unsqueeze(-1), 0.0))
    assert torch.equal(rows.sorted(x[:, 0]), x[order, 0])
    assert torch.equal(rows.unsorted(rows.sorted(x[:, 0])), x[:, 0])
    expected = torch.stack([x[row, t - 1] for row, t in places if t])
    assert torch.equal(packed[rows.before], expected)


def test_a_batch_without_padding_is_not_reordered() -> None:
    x = torch.randn(4, 3, 2)
    for rows in (Rows.of(x, None), Rows.of(x, torch.ones(4, 3, dtype=torch.bool))):
        packed = rows.packed(x)
        assert torch.equal(packed, torch.cat([x[:, t] for t in range(3)]))
        assert torch.equal(rows.padded_again(packed), x)
        assert torch.equal(packed[rows.before], packed[:8])
        assert rows.sorted(x) is x


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


@needs_compiler
def test_a_step_of_very_many_parts_runs_all_the_same() -> None:
    """The compiled loop has room for so many arrays and no more; what has more has to run another way."""

    class Many(Written):
        def __init__(self) -> None:
            super().__init__(lambda p, x, a, b: (x, a, b))
            self.more = nn.ParameterList(nn.Parameter(torch.randn(D).double()) for _ in range(300))

        def step(self, x_t: Tensor, state: State = None) -> tuple[Tensor, Pair]:
            a, b = self.init_state(len(x_t)) if state is None else state
            h = a + x_t
            for vector in self.more:
                h = torch.tanh(h * vector)
            return h, Pair(h, b)

    layer = Many()
    with torch.no_grad():
        assert explain(layer) != "compiled"
        x = torch.randn(B, T, D, dtype=torch.float64)
        torch.testing.assert_close(layer(x)[0], layer.fold(x)[0])


class TestMemory:
    """What an LSTM with d units needs, in numbers a position: 4 d for the gates, d for h and d for c."""

    N, d = B * T, 8

    def arrays(self, monkeypatch: pytest.MonkeyPatch, *, trains: bool) -> dict[str, dict[Array, Storage]]:
        """Those that each pass is run on."""
        seen: dict[str, dict[Array, Storage]] = {}
        run = Plain.run

        def spy(plain: Plain, name: str, arrays: dict[Array, Storage], *args: Any, **kwargs: Any) -> None:
            seen[name] = dict(arrays)
            run(plain, name, arrays, *args, **kwargs)

        monkeypatch.setattr(Plain, "run", spy)
        layer = LSTM(3, self.d)
        with torch.set_grad_enabled(trains), executing("plain"):
            found = unroll(layer, torch.randn(B, T, 3), layer.init_state(B), None)
            assert found is not None
            if trains:
                (found[0].sum() + found[1].c.sum()).backward()
        return seen

    def numbers(self, arrays: dict[Array, Storage]) -> int:
        """For each position, in arrays of all positions; an array inside of another needs no room."""
        whole = [storage.tensor for array, storage in arrays.items() if len(storage.tensor) == self.N]
        sizes = {part.untyped_storage().data_ptr(): part.untyped_storage().nbytes() // 4 for part in whole}
        return sum(sizes.values()) // self.N

    def test_of_training(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = self.arrays(monkeypatch, trains=True)
        x, error = 3, self.d
        assert self.numbers(seen["forward"]) == 4 * self.d + 2 * self.d + x
        assert self.numbers(seen["backward"]) == 4 * self.d + 2 * self.d + x + error

    def test_of_inference(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only the outputs and W x."""
        seen = self.arrays(monkeypatch, trains=False)
        assert seen.keys() == {"inference"}
        assert self.numbers(seen["inference"]) == 4 * self.d + self.d + 3

    def test_of_layer_norm(self) -> None:
        """What is sliced is kept whole, and errors that are only added up have no room of their own."""
        d = self.d
        program = build(trace(LayerNormLSTM(3, d)))
        assert sorted(array.width for array in program.kept) == [1] * 6 + [4 * d] * 2
        arrays = schedule(program.backward).arrays
        assert {array.width for array in arrays if array.name == "work"} == {d}

    def test_of_what_is_kept(self) -> None:
        program = build(trace(LSTM(3, self.d)))
        runner = Runner(program, Plain(program))
        layer = LSTM(3, self.d)
        tensors = [torch.zeros(self.N, 3)]
        tensors += [torch.zeros(B, self.d)] * 2 + [layer.bias.view(1, -1)] * len(runner.program.trace.vectors)
        shapes = ((3, 4 * self.d), (self.d, 4 * self.d))
        matrices = [torch.zeros(*shapes[place]) for place in range(len(runner.program.trace.matrices))]
        values = Values.of([tensor.detach() for tensor in (*tensors, *matrices)], runner.program)
        rows = Rows.of(torch.zeros(B, T, 3), None)
        output, _, kept = runner.forward(values, rows, keep=True)
        assert self.numbers(kept) + output.numel() // self.N == 6 * self.d
        assert runner.forward(values, rows, keep=False)[2] == {}
