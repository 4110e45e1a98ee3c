"""The derivative of a step, as a graph again: reverse accumulation, symbol by symbol.

Back-propagation through time in two passes (reference: Werbos 1990): left to right a step keeps what is needed, right
to left the error at a state is what arrives from outside plus what the step after sends back. Here is one step of the
second pass; it sends back the error at the state before, and at everything else that the step has read.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from ensue.engine.graph import LEAVES, Node, reachable
from ensue.engine.operations import OPERATIONS


def errors(results: Iterable[tuple[Node, Node]]) -> dict[Node, Node]:
    """From pairs (result, error at it) to the error at every node that the results are made of.

    None is followed from a product to the input: that is one product over all positions, made outside.
    """
    contributions: dict[Node, list[Node]] = {}
    for result, error in results:
        contributions.setdefault(result, []).append(error)
    found: dict[Node, Node] = {}
    for node in sorted(reachable(contributions), key=lambda node: -node.order):
        if node not in contributions or node.op == "constant":
            continue
        error = found[node] = _total(node, contributions[node])
        if node.op in LEAVES:
            continue
        for arg, part in zip(node.args, _sent_back(node, error), strict=True):
            if part is not None and arg.op != "constant":
                contributions.setdefault(arg, []).append(part)
    return found


def _sent_back(node: Node, error: Node) -> tuple[Node | None, ...]:
    """The error at each argument of a node."""
    graph = node.graph
    match node.op:
        case "slice":
            return (_placed(error, node),)
        case "cat":
            starts = [sum(part.width for part in node.args[:k]) for k in range(len(node.args))]
            return tuple(graph.slice(error, start, part.width) for start, part in zip(starts, node.args, strict=True))
        case "sum":
            return (graph.spread(error, node.args[0].width, node.index),)
        case "product":
            (arg,) = node.args
            if (arg.args[0] if arg.op == "slice" else arg).op == "input":
                return (None,)
            return (graph.product(error, node.index, arg.width, transposed=True),)
    if node.op == "spread":
        parts: tuple[Node | None, ...] = (graph.sum(error, node.args[0].width, node.index),)
    else:
        parts = OPERATIONS[node.op].derivative(node, graph.broadcast(error, node.width))
    return tuple(
        graph.sum(part) if part is not None and arg.width < part.width else part
        for arg, part in zip(node.args, parts, strict=True)
    )


def _placed(error: Node, piece: Node) -> Node:
    """The error at a slice, as an error at the whole: zeros beside it."""
    graph, whole = error.graph, piece.args[0]
    after = whole.width - piece.index - piece.width
    return graph.cat([graph.constant(0, piece.index), error, graph.constant(0, after)])


def _total(node: Node, parts: list[Node]) -> Node:
    """The sum of the errors that arrive at a node. Those at slices of it (a `chunk`) become one `cat`."""
    graph = node.graph
    if not any(part.op == "cat" for part in parts):
        return _sum(parts, node.width)
    borders = {0, node.width}
    for part in parts:
        if part.op == "cat":
            begin = 0
            for piece in part.args:
                begin += piece.width
                borders.add(begin)
    ends = sorted(borders)
    return graph.cat(
        _sum([graph.slice(part, begin, end - begin) for part in parts], end - begin) for begin, end in pairwise(ends)
    )


def _sum(parts: list[Node], width: int) -> Node:
    total, *others = sorted(parts, key=lambda part: part.op == "product_t")  # first what waits for no product
    for part in others:
        total = total + part
    return total.graph.broadcast(total, width)
