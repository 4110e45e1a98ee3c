"""How torch's operations become nodes, by their names below autograd: the table of what a step may be written with.

Operations that are written with others are composed here; what each pointwise operation does stands in `operations.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ensue.engine.graph import Graph, Node


class Untraceable(Exception):
    """A step holds something that the engine cannot run; its message says what."""


class Nodes(ABC):
    """The part of a trace that a handler asks."""

    graph: Graph
    rows: int
    """Number of rows that the step was traced with."""

    @abstractmethod
    def node(self, value: Any) -> Node:
        """The node of a tensor, or of a number."""

    @abstractmethod
    def product(self, value: Any, matrix: Any) -> Node:
        """The node of `value @ matrix`."""


Handler = Callable[[Nodes, Any, dict[str, Any]], Any]
"""From the arguments of an operation to the node of its result, or to a list of them."""


def _pointwise(op: str) -> Handler:
    def handle(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
        if any(value is not None for name, value in kwargs.items() if name != "alpha"):
            raise Untraceable(f"{op} with {', '.join(kwargs)}")
        given = [nodes.node(arg) for arg in args]
        if kwargs.get("alpha", 1) != 1:
            given[1] = given[1] * kwargs["alpha"]
        return nodes.graph.pointwise(op, *given)

    return handle


def _composed(compose: Callable[..., Node]) -> Handler:
    """Of an operation that is written with others; what is no tensor is handed on as it is."""

    def handle(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
        return compose(*(nodes.node(arg) if isinstance(arg, Tensor) else arg for arg in args), **kwargs)

    return handle


def _apply(op: str, *args: Node | float) -> Node:
    graph = next(arg.graph for arg in args if isinstance(arg, Node))
    return graph.pointwise(op, *args)


def _pow(a: Node, exponent: float) -> Node:
    if exponent == int(exponent) and 1 <= exponent <= 4:
        power = a
        for _ in range(int(exponent) - 1):
            power = power * a
        return power
    known = {0.5: "sqrt", -0.5: "rsqrt"}
    if exponent in known:
        return _apply(known[exponent], a)
    if exponent == -1:
        return a.graph.constant(1) / a
    raise Untraceable(f"the power {exponent}")


def _clamp(a: Node, lower: Node | float | None = None, upper: Node | float | None = None) -> Node:
    """At a limit the error goes through, as torch has it."""
    a = a if lower is None else _apply("where", _apply("ge", a, lower), a, lower)
    return a if upper is None else _apply("where", _apply("le", a, upper), a, upper)


def _hardtanh(a: Node, lower: float = -1.0, upper: float = 1.0) -> Node:
    """At a limit no error goes through, as torch has it."""
    a = _apply("where", _apply("gt", a, lower), a, lower)
    return _apply("where", _apply("lt", a, upper), a, upper)


def _softplus(a: Node, beta: float = 1, threshold: float = 20) -> Node:
    scaled = a * beta
    negative = -_apply("abs", scaled)
    soft = (_apply("maximum", scaled, 0.0) + _apply("log", _apply("exp", negative) + 1)) / beta
    return _apply("where", _apply("gt", scaled, threshold), a, soft)


def _gelu(a: Node, approximate: str = "none") -> Node:
    if approximate == "none":
        return a * 0.5 * (_apply("erf", a * 0.5**0.5) + 1)
    return a * 0.5 * (_apply("tanh", (a + a * a * a * 0.044715) * (2 / 3.141592653589793) ** 0.5) + 1)


def _product(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
    value, matrix = args
    return nodes.product(value, matrix)


def _product_and_bias(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
    bias, value, matrix = args
    if kwargs:
        raise Untraceable("addmm with factors")
    return nodes.product(value, matrix) + nodes.node(bias)


def _last(dim: Any) -> None:
    if dim not in (1, -1):
        raise Untraceable("an operation across rows")


def _split(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> list[Node]:
    value, sizes, *dim = args
    _last(dim[0] if dim else kwargs.get("dim", 0))
    node = nodes.node(value)
    if isinstance(sizes, int):
        sizes = [min(sizes, node.width - start) for start in range(0, node.width, sizes)]
    return [nodes.graph.slice(node, sum(sizes[:k]), size) for k, size in enumerate(sizes)]


def _slice(nodes: Nodes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
    defaults: tuple[Any, ...] = (None, 0, None, None, 1)
    value, dim, start, stop, step = args + defaults[len(args) :]
    node = nodes.node(value)
    start, stop, step = slice(start, stop, step).indices(nodes.rows if dim in (0, -2) else node.width)
    if dim in (0, -2) and (start, stop) == (0, nodes.rows):
        return node
    _last(dim)
    if step != 1 or stop <= start:
        raise Untraceable("a slice with a step, or of nothing")
    return nodes.graph.slice(node, start, stop - start)


def _cat(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
    parts, *dim = args
    _last(dim[0] if dim else kwargs.get("dim", 0))
    return nodes.graph.cat(nodes.node(part) for part in parts)


def _over_features(nodes: Nodes, args: Any, kwargs: dict[str, Any], *, mean: bool) -> Node:
    value, dims, *keep = args
    if list(dims) not in ([1], [-1]) or not (keep and keep[0]):
        raise Untraceable("a sum that is not over features with keepdim=True")
    node = nodes.node(value)
    return nodes.graph.sum(node) * (1 / node.width if mean else 1.0)


def _layer_norm(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> list[Node]:
    """Ba, Kiros & Hinton 2016, eq. 4, in two passes over the features.

    The variance does not change with the mean, Σ(x - mean) being 0, so no error is followed from one to the other.
    """
    value, shape, gain, bias, epsilon = args
    node = nodes.node(value)
    if list(shape) != [node.width]:
        raise Untraceable("a layer norm over some of the features")
    mean = nodes.graph.sum(node) * (1 / node.width)
    deviation = node - _apply("stop", mean)
    variance = nodes.graph.sum(deviation * deviation) * (1 / node.width)
    normal = (node - mean) * _apply("rsqrt", variance + epsilon)
    normal = normal if gain is None else normal * nodes.node(gain)
    return [normal if bias is None else normal + nodes.node(bias)]


def _same(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
    if kwargs.get("dtype") not in (None, args[0].dtype):
        raise Untraceable("a change of type")
    return nodes.node(args[0])


def _expand(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
    value, sizes = args
    node = nodes.node(value)
    if len(sizes) != 2 or sizes[0] not in (nodes.rows, -1):
        raise Untraceable("a broadcast to another shape than (rows, features)")
    return nodes.graph.broadcast(node, node.width if sizes[1] == -1 else sizes[1])


def _filled(value: float | None) -> Handler:
    def handle(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
        like, *rest = args
        number = rest[-1] if value is None else value
        return nodes.graph.constant(float(number), nodes.node(like).width)

    return handle


HANDLERS: dict[str, Handler] = {
    "mm": _product,
    "addmm": _product_and_bias,
    "split": _split,
    "split_with_sizes": _split,
    "slice": _slice,
    "cat": _cat,
    "expand": _expand,
    "sum": lambda nodes, args, kwargs: _over_features(nodes, args, kwargs, mean=False),
    "mean": lambda nodes, args, kwargs: _over_features(nodes, args, kwargs, mean=True),
    "native_layer_norm": _layer_norm,
    "detach": _pointwise("stop"),
    "zeros_like": _filled(0.0),
    "ones_like": _filled(1.0),
    "full_like": _filled(None),
    "rsub": _composed(lambda a, b, alpha=1: _apply("sub", b, a * alpha)),
    "square": _composed(lambda a: a * a),
    "reciprocal": _composed(lambda a: a.graph.constant(1) / a),
    "pow": _composed(_pow),
    "clamp": _composed(_clamp),
    "clamp_min": _composed(_clamp),
    "clamp_max": _composed(lambda a, upper: _clamp(a, None, upper)),
    "hardtanh": _composed(_hardtanh),
    "softplus": _composed(_softplus),
    "gelu": _composed(_gelu),
    "silu": _composed(lambda a: a * _apply("sigmoid", a)),
    "leaky_relu": _composed(lambda a, slope=0.01: _apply("where", _apply("gt", a, 0.0), a, a * slope)),
    **dict.fromkeys(("clone", "alias", "_to_copy", "contiguous"), _same),
    **{name: _pointwise(name) for name in ("add", "sub", "mul", "div", "neg", "sigmoid", "tanh", "relu", "exp", "log")},
    **{name: _pointwise(name) for name in ("sqrt", "rsqrt", "sin", "cos", "erf", "abs", "maximum", "minimum", "where")},
    **{name: _pointwise(name) for name in ("gt", "ge", "lt", "le", "eq", "ne")},
    **{f"logical_{name}": _pointwise(name) for name in ("and", "or", "not")},
}
