"""A traced step as three passes over positions, each from arrays to arrays.

For one position, a pass says which arrays are read and which are written. `forward` and `inference` go from left to
right, `backward` from right to left; `forward` also keeps what `backward` reads. Products with x are outside of the
passes, as one product over all positions each; so are the gradients of matrices and the error at x.

`forward` keeps as few numbers as it can: a value is computed again in `backward` if this takes no more numbers than
keeping it. An LSTM keeps its four gates; its states are there anyway, and tanh(c) is computed again. States that are
matrices are not kept but computed again, from one of every few positions: by the pass `again`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ensue.engine.derivative import errors
from ensue.engine.graph import LEAVES, Node, reachable
from ensue.engine.operations import COSTLY, OPERATIONS
from ensue.engine.trace import TracedStep

MOST_KEPT = 128
LARGE = 2
"""A state that has as many times the numbers of an output is a large one."""
_programs: dict[tuple[object, ...], Program] = {}

Extent = Literal["position", "previous", "row", "vector", "sum"]
"""The rows of an array: every position of every row; the same, read one position earlier; every row;
all of them together; all of them, added up."""


class Array(NamedTuple):
    """Features of positions or rows, under a name and a number."""

    name: str
    number: int
    width: int
    extent: Extent


class View(NamedTuple):
    """Some features of an array."""

    array: Array
    start: int
    width: int


@dataclass(frozen=True, eq=False)
class Pass:
    """The arrays that one position reads and writes, and their places."""

    reads: dict[Node, Array]
    writes: list[tuple[Node, Array]]


@dataclass(frozen=True)
class Product:
    """A product of the step and where its parts stand over all positions."""

    matrix: int
    factor: View
    """The left factor."""
    error: Array
    """The error at the result."""
    hoisted: Array | None
    """Where the result stands, of a product with x."""


@dataclass(frozen=True, eq=False)
class Program:
    """Three passes, and the products outside of them. `states` are arrays of the state's leaves over all positions.

    `again` computes the `large` ones of these from what is kept and from the position before.
    """

    forward: Pass
    inference: Pass
    backward: Pass
    again: Pass
    products: list[Product]
    output: Array
    states: list[Array]
    large: list[Array]
    kept: list[Array]

    @property
    def passes(self) -> dict[str, Pass]:
        """The three by their names."""
        return {"forward": self.forward, "inference": self.inference, "backward": self.backward}


def build(trace: TracedStep) -> Program:
    """The program of a traced step. Steps with the same graph share it, whatever layers they are of."""
    if trace.structure not in _programs:
        if len(_programs) >= MOST_KEPT:
            _programs.clear()
        _programs[trace.structure] = _built(trace)
    return _programs[trace.structure]


def _built(trace: TracedStep) -> Program:
    results = [trace.output, *trace.states]
    products = [node for node in reachable(results) if node.op == "product"]
    given = _given(trace)
    hoisted = {
        node: Array("hoisted", number, node.width, "position")
        for number, node in enumerate(products)
        if _leaf(node.args[0]).op == "input"
    }
    output, states = _ends(trace)
    ends = {trace.output: output, **dict(zip(trace.states, states, strict=True))}

    back = _errors(trace)
    error_of, writes = _shared({node: back[node] for node in products if node in back})
    writes = _written_back(trace, back) + writes
    large = {
        node: ends[node]
        for node in trace.states
        if node.width > LARGE * output.width and node.op not in LEAVES and len(hoisted) == len(products)
    }
    standing = {node: array for node, array in ends.items() if node.op not in ("input", "state")}
    there = given | {node: array for node, array in standing.items() if node not in large}
    wanted = [*(node for node, _ in writes), *large]
    wanted += [node.args[0] for node in products if _leaf(node.args[0]) not in given]
    kept = {
        node: hoisted.get(node) or Array("saved", number, node.width, "position")
        for number, node in enumerate(_kept(wanted, results, there))
    }
    there.update(kept)
    again = {node: there[node] for node in reachable(large, leaves=there) if node in there}
    there.update(large)
    factor_of, remade = _factors(products, there)
    return Program(
        forward=Pass(given | hoisted, [*ends.items(), *((n, a) for n, a in kept.items() if n not in hoisted)]),
        inference=Pass(given | hoisted, list(ends.items())),
        backward=Pass(there | _arriving(trace), writes + remade),
        again=Pass(again, list(large.items())),
        products=[
            Product(node.index, factor_of[node.args[0]], error, hoisted.get(node)) for node, error in error_of.items()
        ],
        output=output,
        states=states,
        large=list(large.values()),
        kept=list(kept.values()),
    )


def _given(trace: TracedStep) -> dict[Node, Array]:
    """Where the leaves of a step stand."""
    graph = trace.graph
    found = {
        graph.node("state", width=width, number=number): Array("previous", number, width, "previous")
        for number, width in enumerate(trace.state_widths)
    }
    for node in reachable([trace.output, *trace.states]):
        if node.op in ("input", "vector"):
            extent: Extent = "position" if node.op == "input" else "vector"
            found[node] = Array(node.op, node.index, node.width, extent)
    return found


def _ends(trace: TracedStep) -> tuple[Array, list[Array]]:
    """Where outputs and states are written. What is both stands in one place, and so do two states that are one."""
    output = Array("output", 0, trace.output.width, "position")
    known = {trace.output: output}
    for number, node in enumerate(trace.states):
        known.setdefault(node, Array("state", number, node.width, "position"))
    return output, [known[node] for node in trace.states]


def _factors(products: Iterable[Node], there: dict[Node, Array]) -> tuple[dict[Node, View], list[tuple[Node, Array]]]:
    """Where the factor of each product stands when the backward pass is through; and what that has to make again."""
    found: dict[Node, View] = {}
    remade = []
    for (arg,) in (node.args for node in products):
        if arg in there:
            found[arg] = View(there[arg], 0, arg.width)
        elif _leaf(arg) in there:
            found[arg] = View(there[_leaf(arg)], arg.index, arg.width)
        elif arg not in found:
            found[arg] = View(Array("factor", len(found), arg.width, "position"), 0, arg.width)
            remade.append((arg, found[arg].array))
    return found, remade


def _leaf(node: Node) -> Node:
    """The node that a slice is a part of."""
    return node.args[0] if node.op == "slice" else node


def _arriving(trace: TracedStep) -> dict[Node, Array]:
    """The errors that arrive from outside: at the output (0), and at the states from the position after (1, ...)."""
    graph, width = trace.graph, trace.output.width
    found = {graph.node("error", width=width): Array("error output", 0, width, "position")}
    for number, width in enumerate(trace.state_widths):
        leaf = graph.node("error", width=width, number=number + 1)
        found[leaf] = Array("error state", number, width, "row")
    return found


def _errors(trace: TracedStep) -> dict[Node, Node]:
    arriving = list(_arriving(trace))
    return errors(zip([trace.output, *trace.states], arriving, strict=True))


def _written_back(trace: TracedStep, back: dict[Node, Node]) -> list[tuple[Node, Array]]:
    """The errors at the leaves of a step. A state that the step does not read gets zeros."""
    found = []
    for node, error in back.items():
        if node.op == "input":
            found.append((error, Array("error input", node.index, node.width, "position")))
        elif node.op == "vector":
            found.append((error, Array("error vector", node.index, node.width, "sum")))
    for number, width in enumerate(trace.state_widths):
        error = back.get(trace.graph.node("state", width=width, number=number), trace.graph.constant(0, width))
        found.append((error, Array("error state", number, width, "row")))
    return found


def _shared(error_of: dict[Node, Node]) -> tuple[dict[Node, Array], list[tuple[Node, Array]]]:
    """One array for each distinct error at a product: where W x and U h are added, the error at both is the same."""
    arrays: dict[Node, Array] = {}
    for error in error_of.values():
        arrays.setdefault(error, Array("error product", len(arrays), error.width, "position"))
    return {node: arrays[error] for node, error in error_of.items()}, list(arrays.items())


def _kept(wanted: Iterable[Node], results: Iterable[Node], there: dict[Node, Array]) -> list[Node]:
    """Which values of the forward pass the backward pass cannot do without."""
    forward = set(reachable(results))
    needed, waiting, seen = [], list(wanted), set()
    while waiting:
        node = waiting.pop()
        if node in forward:
            needed.append(node)
        elif node not in seen:
            seen.add(node)
            waiting.extend(node.args)
    kept: set[Node] = set()
    for node in sorted(needed, key=lambda node: node.order):
        kept |= _missing(node, kept | there.keys(), {})
    for whole in {_leaf(node) for node in kept}:  # all slices of something are it
        slices = {node for node in kept if _leaf(node) == whole}
        if sum(node.width for node in slices) == whole.width:
            kept = kept - slices | {whole}
    return sorted(kept, key=lambda node: node.order)


def _missing(node: Node, there: set[Node], known: dict[Node, frozenset[Node]]) -> frozenset[Node]:
    """The nodes to keep in order to have `node`: itself, or others that have no more numbers and are not kept yet."""
    if node in there or node.op == "constant":
        return frozenset()
    if node not in known:
        known[node] = itself = frozenset({node})
        if node.op not in ("product", "sum"):
            parts = itself.union(*(_missing(arg, there, known) for arg in node.args)) - itself
            numbers = sum(part.width for part in parts if part.op != "sum" or part.width > 1)
            is_condition = node.op in OPERATIONS and OPERATIONS[node.op].is_condition
            if numbers < node.width + (node.op not in COSTLY) or is_condition or node.op == "cat":
                known[node] = parts
    return known[node]
