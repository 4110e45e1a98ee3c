"""Each operation of the engine in C and in torch, its derivative, and graphs of operations."""

import ctypes

import pytest
import torch
from torch import Tensor

from engine.twins import needs_compiler
from ensue.engine.c_library import library
from ensue.engine.graph import OPERATIONS, Graph, Node

RANGES = dict.fromkeys(("log", "log1p", "sqrt", "rsqrt"), (0.1, 3.0))
COMPARISONS = {name for name, row in OPERATIONS.items() if row.is_condition}
LOGICAL = {"and", "or", "not"}
ARITIES = {name: len({place for place in (0, 1, 2) if f"{{{place}}}" in row.c}) for name, row in OPERATIONS.items()}


def points(name: str) -> list[Tensor]:
    """Return arguments of an operation, (1, 400) each, away from its kinks. Some arguments of comparisons are equal."""
    low, high = RANGES.get(name, (-3.0, 3.0))
    generator = torch.Generator().manual_seed(0)
    arguments = [low + (high - low) * torch.rand(1, 400, generator=generator, dtype=torch.float64) for _ in range(3)]
    if name in COMPARISONS:
        arguments[0][:, ::3] = arguments[1][:, ::3]
    if name in LOGICAL:
        arguments = [(argument > 0).to(argument.dtype) for argument in arguments]
    if name == "where":
        arguments[0] = (arguments[0] > 0).to(torch.float64)
    return arguments[: ARITIES[name]]


@needs_compiler
def test_operations_in_c_equal_those_of_torch() -> None:
    text = "".join(
        f"void try_{name}(const real *a, const real *b, const real *c, real *y) {{\n"
        f"    for (int64_t j = 0; j < 400; j++) y[j] = {row.c.format('a[j]', 'b[j]', 'c[j]')};\n}}\n"
        for name, row in OPERATIONS.items()
    )
    functions = library(text, torch.float64)
    assert functions is not None
    for name, row in OPERATIONS.items():
        arguments = points(name)
        result = torch.full((1, 400), torch.nan, dtype=torch.float64)
        addresses = [ctypes.c_void_p(tensor.data_ptr()) for tensor in arguments]
        getattr(functions, f"try_{name}")(*(addresses * 3)[:3], ctypes.c_void_p(result.data_ptr()))
        if name == "where":
            arguments[0] = arguments[0] > 0
        torch.testing.assert_close(result, row.plain(*arguments).to(result.dtype), rtol=1e-13, atol=1e-13, msg=name)


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - COMPARISONS - {"stop", "where"}))
def test_derivatives_equal_finite_differences(name: str) -> None:
    arguments = points(name)
    graph = Graph()
    nodes = [graph.node("state", width=400, number=place) for place in range(len(arguments))]
    y = graph.pointwise(name, *nodes)
    g = graph.node("error", width=400)
    derivatives = OPERATIONS[name].derivative(y, g)
    error = torch.linspace(-1, 2, 400, dtype=torch.float64).unsqueeze(0)
    step = 1e-6
    for place, derivative in enumerate(derivatives):
        both_sides = [[*arguments] for _ in range(2)]
        for sign, moved_arguments in zip((-1, 1), both_sides, strict=True):
            moved_arguments[place] = moved_arguments[place] + sign * step
        lower, upper = (OPERATIONS[name].plain(*moved_arguments) for moved_arguments in both_sides)
        assert derivative is not None
        values = {**dict(zip(nodes, arguments, strict=True)), g: error}
        torch.testing.assert_close(
            value(derivative, values), error * (upper - lower) / (2 * step), rtol=1e-6, atol=1e-8
        )


def value(node: Node, values: dict[Node, Tensor]) -> Tensor:
    """Evaluate a graph of pointwise operations."""
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
            arguments = [a] * ARITIES[name]
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
    """Equal nodes are one node, and operations without effect add none."""

    def setup_method(self) -> None:
        self.graph = Graph()
        self.a, self.b = (self.graph.node("state", width=4, number=place) for place in (0, 1))

    def test_equal_nodes_are_one(self) -> None:
        assert self.a + self.b is self.a + self.b
        assert self.a + self.b is not self.a - self.b
        assert self.graph.product(self.a, 0, 3) is self.graph.product(self.a, 0, 3)
        assert self.graph.product(self.a, 0, 3) is not self.graph.product(self.a, 0, 3, transposed=True)

    def test_operations_with_0_and_1_add_no_node(self) -> None:
        zeros = self.graph.constant(0, 4)
        assert self.a + 0 is self.a
        assert self.a - 0 is self.a
        assert self.a * 1 is self.a
        assert self.a / 1 is self.a
        assert self.a * 0 is zeros
        assert self.graph.product(zeros, 0, 3) is self.graph.constant(0, 3)
        assert self.graph.node("state", width=1, number=2) + zeros is not self.graph.node("state", width=1, number=2)

    def test_a_slice_is_taken_of_the_arguments_of_a_value(self) -> None:
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
