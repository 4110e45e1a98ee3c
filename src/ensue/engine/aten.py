"""How torch's operations become nodes, by their names below autograd: the table of what a step may be written with.

Operations that are written with others are composed here; what each pointwise operation does stands in `operations.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
import torch
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

    def wide(self, value: Any, shape: Sequence[int]) -> Node:
        """The node of a tensor that is broadcast to `shape`, whose first dimension is the rows."""
        node = self.node(value)
        sizes = [1] * (len(shape) - value.dim()) + list(value.shape) if isinstance(value, Tensor) else []
        for place in range(len(sizes) - 1, 0, -1):
            if sizes[place] != shape[place] and node.width > 1:
                node = self.graph.spread(node, node.width * shape[place], prod(shape[place + 1 :]))
        return node

    @abstractmethod
    def product(self, value: Any, matrix: Any) -> Node:
        """The node of `value @ matrix`."""


Handler = Callable[[Nodes, Any, dict[str, Any]], Any]
"""From the arguments of an operation to the node of its result, or to a list of them."""


def _pointwise(op: str) -> Handler:
    def handle(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
        if any(value is not None for name, value in kwargs.items() if name != "alpha"):
            raise Untraceable(f"{op} with {', '.join(kwargs)}")
        given = _alike(nodes, args)
        if kwargs.get("alpha", 1) != 1:
            given[1] = given[1] * kwargs["alpha"]
        return nodes.graph.pointwise(op, *given)

    return handle


def _alike(nodes: Nodes, args: Sequence[Any]) -> list[Node]:
    """The nodes of arguments, broadcast to one shape; by numpy, since torch's own function imports sympy."""
    shape = torch.Size(np.broadcast_shapes(*(arg.shape for arg in args if isinstance(arg, Tensor))))
    return [nodes.wide(arg, shape) for arg in args]


def _composed(compose: Callable[..., Node]) -> Handler:
    """Of an operation that is written with others; what is no tensor is handed on as it is."""

    def handle(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
        alike = iter(_alike(nodes, [arg for arg in args if isinstance(arg, Tensor)]))
        return compose(*(next(alike) if isinstance(arg, Tensor) else arg for arg in args), **kwargs)

    return handle


def _apply(op: str, *args: Node | float) -> Node:
    graph = next(arg.graph for arg in args if isinstance(arg, Node))
    return graph.pointwise(op, *args)


def _pow(a: Node, exponent: float) -> Node:
    if exponent in (1, 2, 3, 4):
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


@cache
def _slope_at_bound(function: Callable[..., Tensor], *, of_tensor: bool) -> float:
    """The slope of `clamp` or `hardtanh` at its lower bound, which differs from torch to torch: 0, 1 or a half."""
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.zeros(1, requires_grad=True)
        y = torch.clamp(x, torch.zeros(1)) if of_tensor else function(x, 0.0, 1.0)
        return float(torch.autograd.grad(y, x)[0])


def _limited(function: Callable[..., Tensor], lower: float | None = None, upper: float | None = None) -> Handler:
    """Of `function`, which limits its argument to bounds; `lower` and `upper` are those that it has of itself."""

    def limited(a: Node, lower: Node | float | None = lower, upper: Node | float | None = upper) -> Node:
        for limit, beyond, at, best in ((lower, "lt", "le", "maximum"), (upper, "gt", "ge", "minimum")):
            if limit is not None:
                slope = _slope_at_bound(function, of_tensor=isinstance(limit, Node))
                bound = limit if isinstance(limit, Node) else a.graph.constant(limit)
                is_out = _apply(at if slope == 0 else beyond, a, bound)
                if bound.op != "constant" or math.isnan(bound.number):
                    is_out = _apply("or", is_out, _apply("ne", bound, bound))
                a = _apply(best, a, bound) if slope == 0.5 else _apply("where", is_out, bound, a)
        return a

    return _composed(limited)


def _softplus(a: Node, beta: float = 1, threshold: float = 20) -> Node:
    scaled = a * beta
    is_far = _apply("gt", scaled, threshold)
    soft = _apply("log1p", _apply("exp", _apply("where", is_far, 0.0, scaled))) / beta
    return _apply("where", is_far, a, soft)


def _log_sigmoid(a: Node) -> Node:
    return _apply("minimum", a, 0.0) - _apply("log1p", _apply("exp", -_apply("abs", a)))


def _elu(a: Node, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Node:
    is_positive = _apply("gt", a, 0.0)
    negative = _apply("expm1", _apply("where", is_positive, 0.0, a) * input_scale) * (alpha * scale)
    return _apply("where", is_positive, a * scale, negative)


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


def _inner(shape: Sequence[int], dim: int) -> int:
    """The number of features inside of the first dimension of features, which `dim` has to be."""
    if dim % len(shape) == 0:
        raise Untraceable("an operation across rows")
    if dim % len(shape) != 1:
        raise Untraceable("a part of another dimension than the first after the rows")
    return prod(shape[2:])


def _split(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> list[Node]:
    value, sizes, *dim = args
    inner = _inner(value.shape, dim[0] if dim else kwargs.get("dim", 0))
    node, length = nodes.node(value), value.shape[1]
    if isinstance(sizes, int):
        sizes = [min(sizes, length - start) for start in range(0, length, sizes)]
    return [nodes.graph.slice(node, sum(sizes[:k]) * inner, size * inner) for k, size in enumerate(sizes)]


def _slice(nodes: Nodes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
    defaults: tuple[Any, ...] = (None, 0, None, None, 1)
    value, dim, start, stop, step = args + defaults[len(args) :]
    node = nodes.node(value)
    length = value.shape[dim]
    start, stop, step = slice(start, stop, step).indices(length)
    if (start, stop, step) == (0, length, 1):
        return node
    inner = _inner(value.shape, dim)
    if step != 1 or stop <= start:
        raise Untraceable("a slice with a step, or of nothing")
    return nodes.graph.slice(node, start * inner, (stop - start) * inner)


def _cat(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
    parts, *dim = args
    _inner(parts[0].shape, dim[0] if dim else kwargs.get("dim", 0))
    return nodes.graph.cat(nodes.node(part) for part in parts)


def _over_features(nodes: Nodes, args: Any, kwargs: dict[str, Any], *, mean: bool) -> Node:
    value, dims, *keep = args
    node, places = nodes.node(value), sorted(dim % value.dim() for dim in dims or [0])
    if 0 in places or (len(places) == value.dim() - 1 and not (keep and keep[0])):
        raise Untraceable("a sum that is not over features with keepdim=True")
    width, shape = node.width, list(value.shape)
    for place in places:
        node = nodes.graph.sum(node, node.width // shape[place], prod(shape[place + 1 :]))
        shape[place] = 1
    return node * (node.width / width if mean else 1.0)


def _layer_norm(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> list[Node]:
    """Ba, Kiros & Hinton 2016, eq. 4, in two passes over the features.

    The variance does not change with the mean, Σ(x - mean) being 0, so no error is followed from one to the other.
    """
    value, shape, gain, bias, epsilon = args
    node = nodes.node(value)
    if len(shape) != 1:
        raise Untraceable("a layer norm over several dimensions")
    size: int = shape[0]

    def mean_of(part: Node) -> Node:
        return nodes.graph.sum(part, node.width // size) * (1 / size)

    def spread(part: Node) -> Node:
        return part if part.width == 1 else nodes.graph.spread(part, node.width)

    mean = mean_of(node)
    deviation = node - spread(_apply("stop", mean))
    normal = (node - spread(mean)) * spread(_apply("rsqrt", mean_of(deviation * deviation) + epsilon))
    normal = normal if gain is None else normal * nodes.wide(gain, value.shape)
    return [normal if bias is None else normal + nodes.wide(bias, value.shape)]


def _same(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
    if kwargs.get("dtype") not in (None, args[0].dtype):
        raise Untraceable("a change of type")
    return nodes.node(args[0])


def _expand(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
    value, sizes = args
    if sizes[0] not in (nodes.rows, -1) or len(sizes) != value.dim():
        raise Untraceable("a broadcast to another shape than (rows, features)")
    shape = [size if wanted == -1 else wanted for size, wanted in zip(value.shape, sizes, strict=True)]
    return nodes.graph.broadcast(nodes.wide(value, shape), prod(shape[1:]))


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
    **dict.fromkeys(("view", "_unsafe_view", "unsqueeze", "squeeze"), _same),
    "detach": _pointwise("stop"),
    "zeros_like": _filled(0.0),
    "ones_like": _filled(1.0),
    "full_like": _filled(None),
    "rsub": _composed(lambda a, b, alpha=1: _apply("sub", b, a * alpha)),
    "square": _composed(lambda a: a * a),
    "reciprocal": _composed(lambda a: a.graph.constant(1) / a),
    "pow": _composed(_pow),
    **dict.fromkeys(("clamp", "clamp_min"), _limited(torch.clamp)),
    "clamp_max": lambda nodes, args, kwargs: HANDLERS["clamp"](nodes, (args[0], None, args[1]), kwargs),
    "hardtanh": _limited(torch.nn.functional.hardtanh, -1.0, 1.0),
    "softplus": _composed(_softplus),
    "log_sigmoid_forward": _composed(_log_sigmoid),
    "elu": _composed(_elu),
    "gelu": _composed(_gelu),
    "silu": _composed(lambda a: a * _apply("sigmoid", a)),
    "leaky_relu": _composed(lambda a, slope=0.01: _apply("where", _apply("gt", a, 0.0), a, a * slope)),
    **dict.fromkeys(("clone", "alias", "_to_copy", "contiguous"), _same),
    **{name: _pointwise(name) for name in ("add", "sub", "mul", "div", "neg", "sigmoid", "tanh", "relu")},
    **{name: _pointwise(name) for name in ("exp", "expm1", "log", "log1p")},
    **{name: _pointwise(name) for name in ("sqrt", "rsqrt", "sin", "cos", "erf", "abs", "maximum", "minimum", "where")},
    **{name: _pointwise(name) for name in ("gt", "ge", "lt", "le", "eq", "ne")},
    **{f"logical_{name}": _pointwise(name) for name in ("and", "or", "not")},
}
