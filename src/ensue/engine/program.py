"""The program of a traced step: three passes over positions, which read and write arrays.

A pass lists the arrays that one position reads and writes. `forward` and `inference` run from left to right, `backward`
from right to left; `forward` also saves the values that `backward` reads. Products with x are computed outside of the
passes, as one product over all positions. The gradients of matrices and of x are computed in the same way.

`forward` saves as few numbers as possible. `backward` recomputes a value if its inputs have at most as many numbers,
or, for costly operations such as σ and tanh, fewer numbers. An LSTM saves its four gates, but not tanh(c), since c is
stored anyway. States that are matrices are stored at one of every few positions; `recompute` restores all others.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from ensue.engine.graph import COSTLY, LEAVES, OPERATIONS, Node, reachable
from ensue.engine.trace import TracedStep

MAX_CACHED_PROGRAMS = 128
LARGE_STATE_RATIO = 2
"""A state is large if it has more than this many times the features of the output."""
_programs: "dict[tuple[object, ...], Program]" = {}

Extent = Literal["position", "previous", "row", "vector", "sum"]
"""The rows of an array. "position": one for each row of the batch at each position; "previous": the same array, read at
the position before; "row": one for each row of the batch; "vector": one for all rows; "sum": one for each thread, which
adds up its rows of the batch."""


class Array(NamedTuple):
    """An array of the program, identified by name and number, with `width` features in each row."""

    name: str
    number: int
    width: int
    extent: Extent

    def __str__(self) -> str:
        return f"{self.name} {self.number} of the step"


class View(NamedTuple):
    """`width` features of an array, from `start` on."""

    array: Array
    start: int
    width: int


@dataclass(frozen=True, eq=False)
class Pass:
    """The arrays that a position reads and writes, by node."""

    reads: dict[Node, Array]
    writes: list[tuple[Node, Array]]


@dataclass(frozen=True)
class Product:
    """A product of the step, with the arrays of its factor, its error and its result over all positions."""

    matrix: int
    factor: View
    """The vector factor: x or a state."""
    error: Array
    """The error (loss gradient) at the result."""
    hoisted: Array | None
    """The result, if the factor is x; else None."""


@dataclass(frozen=True, eq=False)
class Program:
    """Three passes, and `recompute`, which computes `large` states from `saved` arrays and the position before."""

    forward: Pass
    inference: Pass
    backward: Pass
    recompute: Pass
    products: list[Product]
    output: Array
    states: list[Array]
    large: list[Array]
    saved: list[Array]

    @property
    def passes(self) -> dict[str, Pass]:
        """The passes by name, without `recompute`."""
        return {"forward": self.forward, "inference": self.inference, "backward": self.backward}


def build(trace: TracedStep) -> Program:
    """Return the program of a traced step. Steps with equal graphs share one program, in all layers."""
    if trace.structure not in _programs:
        if len(_programs) >= MAX_CACHED_PROGRAMS:
            _programs.clear()
        _programs[trace.structure] = _build_program(trace)
    return _programs[trace.structure]


def _build_program(trace: TracedStep) -> Program:
    results = [trace.output, *trace.states]
    products = [node for node in reachable(results) if node.op == "product"]
    inputs = _input_arrays(trace)
    hoisted = {
        node: Array("hoisted", number, node.width, "position")
        for number, node in enumerate(products)
        if _unwrap_slice(node.args[0]).op == "input"
    }
    output, states = _result_arrays(trace)
    result_arrays = {trace.output: output, **dict(zip(trace.states, states, strict=True))}

    incoming = _incoming_errors(trace)
    error_of = errors(zip(results, incoming, strict=True))
    product_errors, writes = _product_error_arrays({node: error_of[node] for node in products if node in error_of})
    writes = _input_error_arrays(trace, error_of) + writes
    large = {
        node: result_arrays[node]
        for node in trace.states
        if node.width > LARGE_STATE_RATIO * output.width and node.op not in LEAVES and len(hoisted) == len(products)
    }
    stored = {node: array for node, array in result_arrays.items() if node.op not in ("input", "state")}
    available = inputs | {node: array for node, array in stored.items() if node not in large}
    required = [*(node for node, _ in writes), *large]
    required += [node.args[0] for node in products if _unwrap_slice(node.args[0]) not in inputs]
    saved = {
        node: hoisted.get(node) or Array("saved", number, node.width, "position")
        for number, node in enumerate(_values_to_save(required, results, available))
    }
    available.update(saved)
    recompute_reads = {node: available[node] for node in reachable(large, leaves=available) if node in available}
    available.update(large)
    factors, recomputed = _factor_views(products, available)
    return Program(
        forward=Pass(
            inputs | hoisted, [*result_arrays.items(), *(item for item in saved.items() if item[0] not in hoisted)]
        ),
        inference=Pass(inputs | hoisted, list(result_arrays.items())),
        backward=Pass(available | incoming, writes + recomputed), recompute=Pass(recompute_reads, list(large.items())),
        products=[
            Product(node.index, factors[node.args[0]], error, hoisted.get(node))
            for node, error in product_errors.items()
        ],
        output=output, states=states, large=list(large.values()), saved=list(saved.values()),
    )  # fmt: skip


def _input_arrays(trace: TracedStep) -> dict[Node, Array]:
    arrays = {
        trace.graph.node("state", width=width, number=number): Array("previous", number, width, "previous")
        for number, width in enumerate(trace.state_widths)
    }
    for node in reachable([trace.output, *trace.states]):
        if node.op in ("input", "vector"):
            extent: Extent = "position" if node.op == "input" else "vector"
            arrays[node] = Array(node.op, node.index, node.width, extent)
    return arrays


def _result_arrays(trace: TracedStep) -> tuple[Array, list[Array]]:
    """Return the arrays of the output and of the states; equal nodes share one array."""
    output = Array("output", 0, trace.output.width, "position")
    arrays = {trace.output: output}
    for number, node in enumerate(trace.states):
        arrays.setdefault(node, Array("state", number, node.width, "position"))
    return output, [arrays[node] for node in trace.states]


def _factor_views(
    products: Iterable[Node], available: dict[Node, Array]
) -> tuple[dict[Node, View], list[tuple[Node, Array]]]:
    """Return the view of each product's left factor after the backward pass, and the factors that this pass recomputes,
    with their arrays.
    """
    views: dict[Node, View] = {}
    recomputed = []
    for (arg,) in (node.args for node in products):
        if arg in available:
            views[arg] = View(available[arg], 0, arg.width)
        elif _unwrap_slice(arg) in available:
            views[arg] = View(available[_unwrap_slice(arg)], arg.index, arg.width)
        elif arg not in views:
            views[arg] = View(Array("factor", len(views), arg.width, "position"), 0, arg.width)
            recomputed.append((arg, views[arg].array))
    return views, recomputed


def _unwrap_slice(node: Node) -> Node:
    return node.args[0] if node.op == "slice" else node


def _incoming_errors(trace: TracedStep) -> dict[Node, Array]:
    """Return the nodes of the error at the output (number 0) and of the errors at the states (1, ...), with arrays."""
    graph, width = trace.graph, trace.output.width
    arrays = {graph.node("error", width=width): Array("error output", 0, width, "position")}
    for number, width in enumerate(trace.state_widths):
        arrays[graph.node("error", width=width, number=number + 1)] = Array("error state", number, width, "row")
    return arrays


def _input_error_arrays(trace: TracedStep, error_of: dict[Node, Node]) -> list[tuple[Node, Array]]:
    """Return the errors at x, vectors and states with their arrays; zeros for a state that the step does not read."""
    arrays = []
    for node, error in error_of.items():
        if node.op == "input":
            arrays.append((error, Array("error input", node.index, node.width, "position")))
        elif node.op == "vector":
            arrays.append((error, Array("error vector", node.index, node.width, "sum")))
    for number, width in enumerate(trace.state_widths):
        error = error_of.get(trace.graph.node("state", width=width, number=number), trace.graph.constant(0, width))
        arrays.append((error, Array("error state", number, width, "row")))
    return arrays


def _product_error_arrays(error_of: dict[Node, Node]) -> tuple[dict[Node, Array], list[tuple[Node, Array]]]:
    """Return an array for each distinct error at a product; in W x + U h, both products have the same error."""
    arrays: dict[Node, Array] = {}
    for error in error_of.values():
        arrays.setdefault(error, Array("error product", len(arrays), error.width, "position"))
    return {node: arrays[error] for node, error in error_of.items()}, list(arrays.items())


def _values_to_save(required: Iterable[Node], results: Iterable[Node], available: dict[Node, Array]) -> list[Node]:
    """Return the values of the forward pass that the backward pass reads and cannot recompute more cheaply."""
    forward = set(reachable(results))
    needed, pending, visited = [], list(required), set()
    while pending:
        node = pending.pop()
        if node in forward:
            needed.append(node)
        elif node not in visited:
            visited.add(node)
            pending.extend(node.args)
    saved: set[Node] = set()
    for node in sorted(needed, key=lambda node: node.order):
        saved |= _cheapest_sources(node, saved | available.keys(), {})
    for unsliced in {_unwrap_slice(node) for node in saved}:  # a value replaces the slices that cover it
        slices = {node for node in saved if _unwrap_slice(node) == unsliced}
        if sum(node.width for node in slices) == unsliced.width:
            saved = saved - slices | {unsliced}
    return sorted(saved, key=lambda node: node.order)


def _cheapest_sources(node: Node, available: set[Node], cache: dict[Node, frozenset[Node]]) -> frozenset[Node]:
    """Return the cheapest set of values to save so that `node` can be recomputed: `node` alone, or its sources."""
    if node in available or node.op == "constant":
        return frozenset()
    if node not in cache:
        cache[node] = alone = frozenset({node})
        if node.op not in ("product", "sum"):
            sources = alone.union(*(_cheapest_sources(arg, available, cache) for arg in node.args)) - alone
            numbers = sum(source.width for source in sources if source.op != "sum" or source.width > 1)
            is_condition = node.op in OPERATIONS and OPERATIONS[node.op].is_condition
            if numbers < node.width + (node.op not in COSTLY) or is_condition or node.op == "cat":
                cache[node] = sources
    return cache[node]


def errors(results: Iterable[tuple[Node, Node]]) -> dict[Node, Node]:
    """Return the error at each node on which the results depend, from pairs of a result and its error.

    Errors at x from products with x are left out: they are computed by one product over all positions after the pass.
    """
    contributions: dict[Node, list[Node]] = {}
    for result, error in results:
        contributions.setdefault(result, []).append(error)
    error_of: dict[Node, Node] = {}
    for node in sorted(reachable(contributions), key=lambda node: -node.order):
        if node not in contributions or node.op == "constant":
            continue
        error = error_of[node] = _add_errors(node, contributions[node])
        if node.op in LEAVES:
            continue
        for arg, contribution in zip(node.args, _argument_errors(node, error), strict=True):
            if contribution is not None and arg.op != "constant":
                contributions.setdefault(arg, []).append(contribution)
    return error_of


def _argument_errors(node: Node, error: Node) -> tuple[Node | None, ...]:
    graph = node.graph
    match node.op:
        case "slice":  # zeros on both sides of the error
            after = node.args[0].width - node.index - node.width
            return (graph.cat([graph.constant(0, node.index), error, graph.constant(0, after)]),)
        case "cat":
            starts = [sum(arg.width for arg in node.args[:k]) for k in range(len(node.args))]
            return tuple(graph.slice(error, start, arg.width) for start, arg in zip(starts, node.args, strict=True))
        case "sum":
            return (graph.spread(error, node.args[0].width, node.index),)
        case "product":
            (arg,) = node.args
            if (arg.args[0] if arg.op == "slice" else arg).op == "input":
                return (None,)
            return (graph.product(error, node.index, arg.width, transposed=True),)
    if node.op == "spread":
        contributions: tuple[Node | None, ...] = (graph.sum(error, node.args[0].width, node.index),)
    else:
        contributions = OPERATIONS[node.op].derivative(node, graph.broadcast(error, node.width))
    return tuple(
        graph.sum(error) if error is not None and arg.width < error.width else error
        for arg, error in zip(node.args, contributions, strict=True)
    )


def _add_errors(node: Node, contributions: list[Node]) -> Node:
    """Return the sum of the errors at a node. Errors at slices of the node, as after `chunk`, are concatenated."""
    graph = node.graph
    borders = {0, node.width}
    for error in contributions:
        if error.op == "cat":
            borders.update(accumulate(arg.width for arg in error.args))
    if len(borders) == 2:
        return _sum(contributions, node.width)
    return graph.cat(
        _sum([graph.slice(error, begin, end - begin) for error in contributions], end - begin)
        for begin, end in pairwise(sorted(borders))
    )


def _sum(terms: list[Node], width: int) -> Node:
    total, *others = sorted(terms, key=lambda term: term.op == "product_t")  # products are computed last
    for term in others:
        total = total + term
    return total.graph.broadcast(total, width)
