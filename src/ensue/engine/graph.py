"""One step of a cell as a graph of values, each a vector of features for every row of the batch.

Leaves are what a step is given: `input` (of this position), `state` (from the position before), `vector` (the same for
all rows: a parameter) and `constant`; in a backward pass also `error`, what arrives from outside. In between stand the
pointwise operations of `operations.py`, whose arguments have the width of their result or width 1, and five that are
not pointwise: `slice` and `cat` of features, `sum` over features, `spread`, which repeats features, and `product` with
a matrix (`product_t`: with its transpose).

Features in several dimensions (heads, matrices) stand one after another, the last dimension innermost. A sum over one
of them has for each feature (o, i) the total of the features (o, c, i); `number` is how many i there are. A spread is
the other way round: its features (o, c, i) are the feature (o, i).

A graph never holds the same value twice: nodes that are written alike are one node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

LEAVES = frozenset({"input", "state", "vector", "constant", "error"})
PRODUCTS = frozenset({"product", "product_t"})
NOT_POINTWISE = LEAVES | PRODUCTS | {"slice", "cat", "sum", "spread"}


@dataclass(frozen=True, eq=False)
class Node:
    """A value: (rows, width) numbers."""

    graph: Graph = field(repr=False)
    op: str
    args: tuple[Node, ...] = field(repr=False)
    width: int
    number: float
    """Which input, state, vector, error or matrix; the value of a constant; where a slice begins; how many features of
    a sum or spread lie side by side."""
    order: int
    """Place in the graph: arguments come before what is made of them."""

    @property
    def index(self) -> int:
        """`number` of everything but a constant."""
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
    """Makes nodes; for a node that was made before, the same object."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[int, ...], int, str], Node] = {}
        self.is_exact = False
        """Whether 0 is a number, which makes NaN of infinity, and not a sign that nothing is there."""
        self.blocks: dict[int, set[int]] = {}
        """The blocks of features into which sums and spreads divide each width; each divides the next."""

    def node(self, op: str, args: Iterable[Node] = (), *, width: int, number: float = 0) -> Node:
        """The node of an operation on `args`, made or known; the fields are those of `Node`."""
        args = tuple(args)
        key = (op, tuple(arg.order for arg in args), width, repr(number))  # 0.0 equals -0.0
        if key not in self._known:
            self._known[key] = Node(self, op, args, width, number, len(self._known))
        return self._known[key]

    def constant(self, value: float, width: int = 1) -> Node:
        """A number that all features of all rows have."""
        return self.node("constant", width=width, number=float(value))

    def pointwise(self, op: str, *args: Node | float) -> Node:
        """An operation of the table, on nodes of one width or of width 1; simplified where an argument is 0 or 1."""
        nodes = [arg if isinstance(arg, Node) else self.constant(arg) for arg in args]
        width = max(node.width for node in nodes)
        assert all(node.width in (1, width) for node in nodes), (op, nodes)
        return _simpler(op, nodes, width, self.is_exact) or self.node(op, nodes, width=width)

    def slice(self, node: Node, start: int, width: int) -> Node:
        """Some features of a node; of a pointwise result, the result of these features of its arguments."""
        if width == node.width:
            return node
        if node.op == "slice":
            return self.slice(node.args[0], start + node.index, width)
        if node.op == "constant":
            return self.constant(node.number, width)
        if node.op == "cat":
            return self._slice_of_cat(node, start, width)
        if node.op == "spread":
            node = self._of_rows(node)
        elif node.op not in NOT_POINTWISE:
            parts = [arg if arg.width == 1 else self.slice(arg, start, width) for arg in node.args]
            return self.broadcast(self.pointwise(node.op, *parts), width)
        return self.node("slice", [node], width=width, number=start)

    def _slice_of_cat(self, node: Node, start: int, width: int) -> Node:
        parts, begin = [], 0
        for part in node.args:
            lower, upper = max(start, begin), min(start + width, begin + part.width)
            if lower < upper:
                parts.append(self.slice(part, lower - begin, upper - lower))
            begin += part.width
        return self.cat(parts)

    def cat(self, parts: Iterable[Node]) -> Node:
        """The features of all parts side by side."""
        flat = [piece for part in parts for piece in (part.args if part.op == "cat" else [part])]
        parts = [part for part in flat if part.width]
        if len(parts) == 1:
            return parts[0]
        return self.node(
            "cat",
            [p if p.op == "constant" else self._of_rows(p) for p in parts],
            width=sum(part.width for part in parts),
        )

    def sum(self, node: Node, width: int = 1, inner: int = 1) -> Node:
        """Over one dimension of the features, inside of which there are `inner` others; over all, for a width of 1."""
        if node.op == "constant":
            return self.constant(node.number * node.width / width, width)
        if node.width == width:
            return node
        self._divide(node.width, inner, node.width // width)
        return self.node("sum", [node], width=width, number=inner)

    def spread(self, node: Node, width: int, inner: int = 1) -> Node:
        """Along one dimension of the features, inside of which there are `inner` others."""
        if node.width in (1, width) or node.op == "constant":
            return self.broadcast(node, width)
        if node.op == "spread":
            (few,) = node.args
            if inner * few.width == node.index * node.width:  # along the next dimension, too
                return self.spread(few, width, node.index)
            node = self._of_rows(node)
        self._divide(width, inner, width // node.width)
        return self.node("spread", [node], width=width, number=inner)

    def _divide(self, width: int, inner: int, count: int) -> None:
        blocks = sorted({*self.blocks.get(width, ()), inner, inner * count, 1, width})
        if any(large % small for small, large in pairwise(blocks)):
            raise ValueError("features that are divided in two ways")
        self.blocks[width] = set(blocks)

    def product(self, node: Node, matrix: int, width: int, *, transposed: bool = False) -> Node:
        """`node` times the matrix of this number, or times its transpose; `width` is that of the result."""
        if not self.is_exact and _is_number(node, 0):
            return self.constant(0, width)
        op = "product_t" if transposed else "product"
        return self.node(op, [self._of_rows(node)], width=width, number=matrix)

    def _of_rows(self, node: Node) -> Node:
        """`node`, or a copy for each row where it is the same for all, or stands in no array by itself."""
        leaves = {part.op for part in reachable([node]) if not part.args}
        return (
            node
            if leaves - {"vector", "constant"} and node.op != "spread"
            else self.node("copy", [node], width=node.width)
        )

    def broadcast(self, node: Node, width: int) -> Node:
        """`node` at `width`, which it has already unless it is one number for each row, or a constant."""
        if node.op == "constant":
            return self.constant(node.number, width)
        return node if node.width == width else self.node("add", [self.constant(-0.0, width), node], width=width)


def _simpler(op: str, args: list[Node], width: int, is_exact: bool) -> Node | None:
    """The simpler form of a pointwise operation where an argument is 0 or 1; None where there is none."""
    if len(args) != 2:
        return None
    a, b = args
    found, zero = None, math.nan if is_exact else 0.0
    if op == "add":
        found = a if _is_number(b, zero) else b if _is_number(a, zero) else None
    elif op == "sub" and _is_number(b, 0) and not (is_exact and math.copysign(1, b.number) < 0):
        found = a
    elif op == "mul":
        found = a if _is_number(b, 1) or _is_number(a, zero) else b if _is_number(a, 1) or _is_number(b, zero) else None
    elif op == "div" and _is_number(b, 1):
        found = a
    if found is not None and found.width != width:
        return found.graph.constant(found.number, width) if found.op == "constant" else None
    return found


def _is_number(node: Node, value: float) -> bool:
    return node.op == "constant" and node.number == value


def reachable(nodes: Iterable[Node], *, leaves: Iterable[Node] = ()) -> Iterator[Node]:
    """The nodes that `nodes` are made of, and they themselves, arguments first; not what `leaves` are made of."""
    stop = {node.order for node in leaves}
    found: dict[int, Node] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node.order not in found:
            found[node.order] = node
            if node.order not in stop:
                waiting.extend(node.args)
    return iter(found[order] for order in sorted(found))
