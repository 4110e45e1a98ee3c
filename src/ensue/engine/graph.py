"""One step of a cell as a graph of values, each a vector of features for every row of the batch.

The leaves are the inputs of a step: `input` (x at this position), `state` (from the position before), `vector` (a
parameter, the same for all rows) and `constant`; in a backward pass also `error` (the loss gradient at a result). The
other nodes are the pointwise operations `OPERATIONS`, whose arguments have the width of their result or width 1, and
five other operations: `slice` and `cat` of features, `sum` over features, `spread`, which repeats features, and
`product` with a matrix (`product_t`: with its transpose).

Features in several dimensions (heads, matrices) are flattened in row-major order. A sum over dimension c turns features
of shape (o, c, i) into features of shape (o, i). A spread is the transpose of a sum: it repeats features of shape
(o, i) along a new dimension c. The `number` of a sum or spread is the size of i.

Equal expressions share one node. To add an operation, extend `OPERATIONS`. Its C code must propagate NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch

LEAVES = frozenset({"input", "state", "vector", "constant", "error"})
PRODUCTS = frozenset({"product", "product_t"})
NOT_POINTWISE = LEAVES | PRODUCTS | {"slice", "cat", "sum", "spread"}


@dataclass(frozen=True, eq=False)
class Node:
    """A value, (rows, width)."""

    graph: Graph = field(repr=False)
    op: str
    args: tuple[Node, ...] = field(repr=False)
    width: int
    number: float
    """The index of an input, state, vector, error or matrix; the value of a constant; the start of a slice; the size of
    the inner dimension of a sum or spread."""
    order: int
    """The position in the graph, in topological order."""

    @property
    def index(self) -> int:
        """The `number` of a node that is not a constant."""
        return int(self.number)

    def __add__(self, other: Node | float) -> Node:
        return self.graph.pointwise("add", self, other)

    def __sub__(self, other: Node | float) -> Node:
        return self.graph.pointwise("sub", self, other)

    def __mul__(self, other: Node | float) -> Node:
        return self.graph.pointwise("mul", self, other)

    def __truediv__(self, other: Node | float) -> Node:
        return self.graph.pointwise("div", self, other)

    def __neg__(self) -> Node:
        return self.graph.pointwise("neg", self)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: float) -> Node:
        return self.graph.constant(other) - self


class Graph:
    """A graph of nodes without duplicates."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[str, tuple[int, ...], int, str], Node] = {}
        self.is_exact = False
        """Whether products with 0 are computed, since 0 · ∞ is NaN; if False, they are simplified to 0."""
        self.blocks: dict[int, set[int]] = {}
        """For each width, the sizes of the blocks of sums and spreads. Every size divides the next larger size."""

    def node(self, op: str, args: Iterable[Node] = (), *, width: int, number: float = 0) -> Node:
        """Return the node of an operation on `args`, with the fields of `Node`."""
        args = tuple(args)
        key = (op, tuple(arg.order for arg in args), width, repr(number))  # 0.0 equals -0.0
        if key not in self._nodes:
            self._nodes[key] = Node(self, op, args, width, number, len(self._nodes))
        return self._nodes[key]

    def constant(self, value: float, width: int = 1) -> Node:
        """Return a constant, the same in all features of all rows."""
        return self.node("constant", width=width, number=float(value))

    def pointwise(self, op: str, *args: Node | float) -> Node:
        """Return a pointwise operation on nodes of one width or of width 1, simplified if an argument is 0 or 1."""
        nodes = [arg if isinstance(arg, Node) else self.constant(arg) for arg in args]
        width = max(node.width for node in nodes)
        assert all(node.width in (1, width) for node in nodes), (op, nodes)
        return _simplify(op, nodes, width, self.is_exact) or self.node(op, nodes, width=width)

    def slice(self, node: Node, start: int, width: int) -> Node:
        """Return `width` features of a node from `start` on; a slice of a pointwise operation slices its arguments."""
        if width == node.width:
            return node
        if node.op == "slice":
            return self.slice(node.args[0], start + node.index, width)
        if node.op == "constant":
            return self.constant(node.number, width)
        if node.op == "cat":
            slices, begin = [], 0
            for arg in node.args:
                lower, upper = max(start, begin), min(start + width, begin + arg.width)
                if lower < upper:
                    slices.append(self.slice(arg, lower - begin, upper - lower))
                begin += arg.width
            return self.cat(slices)
        if node.op == "spread":
            node = self._with_rows(node)
        elif node.op not in NOT_POINTWISE:
            args = [arg if arg.width == 1 else self.slice(arg, start, width) for arg in node.args]
            return self.broadcast(self.pointwise(node.op, *args), width)
        return self.node("slice", [node], width=width, number=start)

    def cat(self, nodes: Iterable[Node]) -> Node:
        """Return the concatenation of features."""
        flat = [arg for node in nodes for arg in (node.args if node.op == "cat" else [node]) if arg.width]
        if len(flat) == 1:
            return flat[0]
        args = [arg if arg.op == "constant" else self._with_rows(arg) for arg in flat]
        return self.node("cat", args, width=sum(arg.width for arg in flat))

    def sum(self, node: Node, width: int = 1, inner: int = 1) -> Node:
        """Return the sum over a dimension of the features. `inner` is the size of the dimensions after it."""
        if node.op == "constant":
            return self.constant(node.number * node.width / width, width)
        if node.width == width:
            return node
        self._divide(node.width, inner, node.width // width)
        return self.node("sum", [node], width=width, number=inner)

    def spread(self, node: Node, width: int, inner: int = 1) -> Node:
        """Return the features, repeated along a new dimension. `inner` is the size of the dimensions after it."""
        if node.width in (1, width) or node.op == "constant":
            return self.broadcast(node, width)
        if node.op == "spread":
            (source,) = node.args
            if inner * source.width == node.index * node.width:  # both repetitions are along adjacent dimensions
                return self.spread(source, width, node.index)
            node = self._with_rows(node)
        self._divide(width, inner, width // node.width)
        return self.node("spread", [node], width=width, number=inner)

    def _divide(self, width: int, inner: int, count: int) -> None:
        blocks = sorted({*self.blocks.get(width, ()), inner, inner * count, 1, width})
        if any(large % small for small, large in pairwise(blocks)):
            raise ValueError("two divisions of the same features that do not nest")
        self.blocks[width] = set(blocks)

    def product(self, node: Node, matrix: int, width: int, *, transposed: bool = False) -> Node:
        """Return the product (rows, width) of `node` and the matrix with the number `matrix`, or its transpose."""
        if not self.is_exact and _is_number(node, 0):
            return self.constant(0, width)
        op = "product_t" if transposed else "product"
        return self.node(op, [self._with_rows(node)], width=width, number=matrix)

    def _with_rows(self, node: Node) -> Node:
        """Return `node`, or its copy with stored rows if it is a spread or all rows have the same value."""
        leaves = {source.op for source in reachable([node]) if not source.args}
        has_rows = leaves - {"vector", "constant"} and node.op != "spread"
        return node if has_rows else self.node("copy", [node], width=node.width)

    def broadcast(self, node: Node, width: int) -> Node:
        """Return `node`, a constant or a node with 1 or `width` features, broadcast to `width` features."""
        if node.op == "constant":
            return self.constant(node.number, width)
        if node.width == width:
            return node
        return self.node("add", [self.constant(-0.0, width), node], width=width)  # x + -0.0 is x, for x = -0.0 too


def _simplify(op: str, args: list[Node], width: int, is_exact: bool) -> Node | None:
    """Return the simpler form of a pointwise operation with an argument 0 or 1, or None."""
    if len(args) != 2:
        return None
    a, b = args
    simple, zero = None, math.nan if is_exact else 0.0
    if op == "add":
        simple = a if _is_number(b, zero) else b if _is_number(a, zero) else None
    elif op == "sub" and _is_number(b, 0) and not (is_exact and math.copysign(1, b.number) < 0):
        simple = a
    elif op == "mul":
        simple = (
            a if _is_number(b, 1) or _is_number(a, zero) else b if _is_number(a, 1) or _is_number(b, zero) else None
        )
    elif op == "div" and _is_number(b, 1):
        simple = a
    if simple is not None and simple.width != width:
        return simple.graph.constant(simple.number, width) if simple.op == "constant" else None
    return simple


def _is_number(node: Node, value: float) -> bool:
    return node.op == "constant" and node.number == value


def reachable(nodes: Iterable[Node], *, leaves: Iterable[Node] = ()) -> Iterator[Node]:
    """Return `nodes` and their arguments, recursively, in topological order, without the arguments of `leaves`."""
    stop = {node.order for node in leaves}
    by_order: dict[int, Node] = {}
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node.order not in by_order:
            by_order[node.order] = node
            if node.order not in stop:
                pending.extend(node.args)
    return iter(by_order[order] for order in sorted(by_order))


Gradients = tuple[Node | None, ...]


@dataclass(frozen=True)
class Operation:
    """A pointwise operation."""

    plain: Callable[..., Any]
    """The function of torch."""
    c: str
    """The expression in C of the arguments {0} to {2}. An expression without `(` is also valid for C vectors."""
    derivative: Callable[[Node, Node], Gradients]
    """A function from the node y and the error g (loss gradient) at y to the error at each argument, or None."""
    is_condition: bool = False
    """Whether the values are booleans."""


COSTLY = frozenset({"div", "sigmoid", "tanh", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "erf"})
"""Operations that take longer than reading a number from memory."""


def _no_gradient(y: Node, g: Node) -> Gradients:
    return (None,) * len(y.args)


def _where_gradient(y: Node, g: Node) -> Gradients:
    condition = y.args[0]
    return None, _where(condition, g, 0.0), _where(condition, 0.0, g)


def _where(condition: Node, a: Node | float, b: Node | float) -> Node:
    return condition.graph.pointwise("where", condition, a, b)


def _extremum_gradient(y: Node, g: Node) -> Gradients:
    """Return the errors at both arguments: g / 2 at each of two equal arguments, g at both if one argument is NaN."""
    a, b = y.args
    shared = _where(y.graph.pointwise("eq", a, b), g * 0.5, g)
    is_a_discarded, is_b_discarded = (
        y.graph.pointwise(op, a, b) for op in (("lt", "gt") if y.op == "maximum" else ("gt", "lt"))
    )
    return _where(is_a_discarded, 0.0, shared), _where(is_b_discarded, 0.0, shared)


def _abs_gradient(y: Node, g: Node) -> Gradients:
    (a,) = y.args
    return (_where(y.graph.pointwise("gt", a, 0.0), g, _where(y.graph.pointwise("lt", a, 0.0), -g, 0.0)),)


def _apply(op: str, node: Node) -> Node:
    return node.graph.pointwise(op, node)


def _condition(plain: Callable[..., Any], c: str) -> Operation:
    return Operation(plain, c, _no_gradient, is_condition=True)


OPERATIONS: dict[str, Operation] = {
    "add": Operation(torch.add, "{0} + {1}", lambda y, g: (g, g)),
    "sub": Operation(torch.sub, "{0} - {1}", lambda y, g: (g, -g)),
    "mul": Operation(torch.mul, "{0} * {1}", lambda y, g: (g * y.args[1], g * y.args[0])),
    "div": Operation(torch.div, "{0} / {1}", lambda y, g: (g / y.args[1], -(g * y) / y.args[1])),
    "neg": Operation(torch.neg, "-{0}", lambda y, g: (-g,)),
    "sigmoid": Operation(torch.sigmoid, "sigmoid_({0})", lambda y, g: (g * (y * (1 - y)),)),
    "tanh": Operation(torch.tanh, "tanh_({0})", lambda y, g: (g * (1 - y * y),)),
    "relu": Operation(
        torch.relu, "({0} < 0 ? 0 : {0})", lambda y, g: (_where(y.graph.pointwise("le", y, 0.0), 0.0, g),)
    ),
    "exp": Operation(torch.exp, "exp_({0})", lambda y, g: (g * y,)),
    "expm1": Operation(torch.expm1, "expm1_({0})", lambda y, g: (g * _apply("exp", y.args[0]),)),
    "log": Operation(torch.log, "log_({0})", lambda y, g: (g / y.args[0],)),
    "log1p": Operation(torch.log1p, "log1p_({0})", lambda y, g: (g / (y.args[0] + 1),)),
    "sqrt": Operation(torch.sqrt, "sqrt_({0})", lambda y, g: (g * 0.5 / y,)),
    "rsqrt": Operation(torch.rsqrt, "1 / sqrt_({0})", lambda y, g: (g * -0.5 * (y * y * y),)),
    "sin": Operation(torch.sin, "sin_({0})", lambda y, g: (g * _apply("cos", y.args[0]),)),
    "cos": Operation(torch.cos, "cos_({0})", lambda y, g: (-(g * _apply("sin", y.args[0])),)),
    "erf": Operation(
        torch.erf, "erf_({0})", lambda y, g: (g * (2 / math.sqrt(math.pi)) * _apply("exp", -(y.args[0] * y.args[0])),)
    ),
    "abs": Operation(torch.abs, "fabs_({0})", _abs_gradient),
    "maximum": Operation(torch.maximum, "({0} > {1} || {0} != {0} ? {0} : {1})", _extremum_gradient),
    "minimum": Operation(torch.minimum, "({0} < {1} || {0} != {0} ? {0} : {1})", _extremum_gradient),
    "stop": Operation(torch.clone, "{0}", _no_gradient), "copy": Operation(torch.clone, "{0}", lambda y, g: (g,)),
    "where": Operation(torch.where, "({0} ? {1} : {2})", _where_gradient), "gt": _condition(torch.gt, "({0} > {1})"),
    "ge": _condition(torch.ge, "({0} >= {1})"), "lt": _condition(torch.lt, "({0} < {1})"),
    "le": _condition(torch.le, "({0} <= {1})"), "eq": _condition(torch.eq, "({0} == {1})"),
    "ne": _condition(torch.ne, "({0} != {1})"), "and": _condition(torch.logical_and, "({0} && {1})"),
    "or": _condition(torch.logical_or, "({0} || {1})"), "not": _condition(torch.logical_not, "(!{0})"),
}  # fmt: skip
