"""Handlers that translate torch's operations into nodes, by the names of the operations (ATen).

A step may use the operations of `HANDLERS`. Composed operations are expanded into the pointwise operations of
`graph.py`, which have a tensor form, a C form and a derivative.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.engine.graph import OPERATIONS, Graph, Node


class Untraceable(Exception):
    """An error in tracing a step. The message names the operation or value that the engine does not support."""


class Nodes(ABC):
    """The interface by which handlers look up the nodes of recorded tensors."""

    graph: Graph
    rows: int
    """The number of rows of the recorded step."""

    @abstractmethod
    def node(self, value: Any) -> Node:
        """Return the node of a tensor or number."""

    def broadcast(self, value: Any, shape: Sequence[int]) -> Node:
        """Return the node of a tensor that is broadcast to `shape`, (rows, ...)."""
        node = self.node(value)
        sizes = [1] * (len(shape) - value.dim()) + list(value.shape) if isinstance(value, Tensor) else []
        for dim in range(len(sizes) - 1, 0, -1):
            if sizes[dim] != shape[dim] and node.width > 1:
                node = self.graph.spread(node, node.width * shape[dim], prod(shape[dim + 1 :]))
        return node

    @abstractmethod
    def product(self, value: Any, matrix: Any) -> Node:
        """Return the node of `value @ matrix`."""


Handler = Callable[[Nodes, Any, dict[str, Any]], Any]
"""A function from the arguments of an operation to the node of its result, or to a list of nodes."""


def _handler_of_pointwise(op: str) -> Handler:
    def handle(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
        if any(value is not None for name, value in kwargs.items() if name != "alpha"):
            raise Untraceable(f"{op} with {', '.join(kwargs)}")
        arguments = _broadcast(nodes, args)
        if kwargs.get("alpha", 1) != 1:
            arguments[1] = arguments[1] * kwargs["alpha"]
        return nodes.graph.pointwise(op, *arguments)

    return handle


def _broadcast(nodes: Nodes, args: Sequence[Any]) -> list[Node]:
    """Return the nodes of arguments, broadcast to one shape by numpy, since torch's function would import sympy."""
    shape = torch.Size(np.broadcast_shapes(*(arg.shape for arg in args if isinstance(arg, Tensor))))
    return [nodes.broadcast(arg, shape) for arg in args]


def _handler_of_composition(compose: Callable[..., Node]) -> Handler:
    """Return the handler of an operation composed of other operations; arguments that are not tensors pass through."""

    def handle(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
        tensors = iter(_broadcast(nodes, [arg for arg in args if isinstance(arg, Tensor)]))
        return compose(*(next(tensors) if isinstance(arg, Tensor) else arg for arg in args), **kwargs)

    return handle


def _apply(op: str, *args: Node | float) -> Node:
    return next(arg.graph for arg in args if isinstance(arg, Node)).pointwise(op, *args)


def _pow(a: Node, exponent: float) -> Node:
    if exponent in (1, 2, 3, 4):
        power = a
        for _ in range(int(exponent) - 1):
            power = power * a
        return power
    roots = {0.5: "sqrt", -0.5: "rsqrt"}
    if exponent in roots:
        return _apply(roots[exponent], a)
    if exponent == -1:
        return a.graph.constant(1) / a
    raise Untraceable(f"the power {exponent}")


@cache
def _slope_at_bound(function: Callable[..., Tensor], *, of_tensor: bool) -> float:
    """Return the derivative of `clamp` or `hardtanh` at its lower bound: 0, 1 or 1/2, depending on torch's version."""
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.zeros(1, device="cpu", requires_grad=True)
        y = torch.clamp(x, torch.zeros_like(x)) if of_tensor else function(x, 0.0, 1.0)
        return float(torch.autograd.grad(y, x)[0])


def _clamp(function: Callable[..., Tensor], lower: float | None = None, upper: float | None = None) -> Handler:
    """Return the handler of `function`, which clamps its argument; `lower` and `upper` are its default bounds."""

    def clamp(a: Node, lower: Node | float | None = lower, upper: Node | float | None = upper) -> Node:
        for limit, beyond, at_or_beyond, closer in ((lower, "lt", "le", "maximum"), (upper, "gt", "ge", "minimum")):
            if limit is not None:
                slope = _slope_at_bound(function, of_tensor=isinstance(limit, Node))
                bound = limit if isinstance(limit, Node) else a.graph.constant(limit)
                is_out = _apply(at_or_beyond if slope == 0 else beyond, a, bound)
                if bound.op != "constant" or math.isnan(bound.number):
                    is_out = _apply("or", is_out, _apply("ne", bound, bound))
                a = _apply(closer, a, bound) if slope == 0.5 else _apply("where", is_out, bound, a)
        return a

    return _handler_of_composition(clamp)


def _softplus(a: Node, beta: float = 1, threshold: float = 20) -> Node:
    scaled = a * beta
    is_far = _apply("gt", scaled, threshold)
    soft = _apply("log1p", _apply("exp", _apply("where", is_far, 0.0, scaled))) / beta
    return _apply("where", is_far, a, soft)


def _elu(a: Node, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Node:
    is_positive = _apply("gt", a, 0.0)
    negative = _apply("expm1", _apply("where", is_positive, 0.0, a) * input_scale) * (alpha * scale)
    return _apply("where", is_positive, a * scale, negative)


def _gelu(a: Node, approximate: str = "none") -> Node:
    if approximate == "none":
        return a * 0.5 * (_apply("erf", a * 0.5**0.5) + 1)
    return a * 0.5 * (_apply("tanh", (a + a * a * a * 0.044715) * (2 / math.pi) ** 0.5) + 1)


def _product_and_bias(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
    bias, value, matrix = args
    if kwargs:
        raise Untraceable("addmm with factors")
    return nodes.product(value, matrix) + nodes.node(bias)


def _num_inner_features(shape: Sequence[int], dim: int) -> int:
    """Return the number of features in one entry of dimension 1. Raises Untraceable if `dim` is another dimension."""
    if dim % len(shape) == 0:
        raise Untraceable("an operation across rows")
    if dim % len(shape) != 1:
        raise Untraceable("a slice or `cat` along another dimension than the first dimension of features")
    return prod(shape[2:])


def _split(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> list[Node]:
    value, sizes, *dim = args
    inner = _num_inner_features(value.shape, dim[0] if dim else kwargs.get("dim", 0))
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
    inner = _num_inner_features(value.shape, dim)
    if step != 1 or stop <= start:
        raise Untraceable("an empty slice, or a slice with a step")
    return nodes.graph.slice(node, start * inner, (stop - start) * inner)


def _cat(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
    tensors, *dim = args
    _num_inner_features(tensors[0].shape, dim[0] if dim else kwargs.get("dim", 0))
    return nodes.graph.cat(map(nodes.node, tensors))


def _reduce_features(nodes: Nodes, args: Any, kwargs: dict[str, Any], *, mean: bool) -> Node:
    value, dims, *keep = args
    node, dims = nodes.node(value), sorted(dim % value.dim() for dim in dims or [0])
    if 0 in dims or (len(dims) == value.dim() - 1 and not (keep and keep[0])):
        raise Untraceable("a sum that is not over features with keepdim=True")
    width, shape = node.width, list(value.shape)
    for dim in dims:
        node = nodes.graph.sum(node, node.width // shape[dim], prod(shape[dim + 1 :]))
        shape[dim] = 1
    return node * (node.width / width) if mean else node


def _layer_norm(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> list[Node]:
    """Return the node of a layer norm (Ba et al. 2016). Since Σ(x - mean) = 0, dσ/dmean is 0."""
    value, shape, gain, bias, epsilon = args
    node = nodes.node(value)
    if len(shape) != 1:
        raise Untraceable("a layer norm over several dimensions")
    size: int = shape[0]

    def mean_of(features: Node) -> Node:
        return nodes.graph.sum(features, node.width // size) * (1 / size)

    def spread(mean: Node) -> Node:
        return mean if mean.width == 1 else nodes.graph.spread(mean, node.width)

    mean = mean_of(node)
    deviation = node - spread(_apply("stop", mean))
    normal = (node - spread(mean)) * spread(_apply("rsqrt", mean_of(deviation * deviation) + epsilon))
    normal = normal if gain is None else normal * nodes.broadcast(gain, value.shape)
    return [normal if bias is None else normal + nodes.broadcast(bias, value.shape)]


def _identity(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
    if kwargs.get("dtype") not in (None, args[0].dtype):
        raise Untraceable("a change of type")
    return nodes.node(args[0])


def _expand(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
    value, sizes = args
    if sizes[0] not in (nodes.rows, -1) or len(sizes) != value.dim():
        raise Untraceable("a broadcast to another shape than (rows, features)")
    shape = [size if new_size == -1 else new_size for size, new_size in zip(value.shape, sizes, strict=True)]
    return nodes.graph.broadcast(nodes.broadcast(value, shape), prod(shape[1:]))


def _constant_like(value: float | None) -> Handler:
    def handle(nodes: Nodes, args: Any, kwargs: dict[str, Any]) -> Node:
        like, *rest = args
        return nodes.graph.constant(float(rest[-1] if value is None else value), nodes.node(like).width)

    return handle


HANDLERS: dict[str, Handler] = {
    "mm": lambda nodes, args, kwargs: nodes.product(*args), "addmm": _product_and_bias, "split": _split,
    "split_with_sizes": _split, "slice": _slice, "cat": _cat, "expand": _expand,
    "sum": lambda nodes, args, kwargs: _reduce_features(nodes, args, kwargs, mean=False),
    "mean": lambda nodes, args, kwargs: _reduce_features(nodes, args, kwargs, mean=True),
    "native_layer_norm": _layer_norm, **dict.fromkeys(("view", "_unsafe_view", "unsqueeze", "squeeze"), _identity),
    "detach": _handler_of_pointwise("stop"), "zeros_like": _constant_like(0.0), "ones_like": _constant_like(1.0),
    "full_like": _constant_like(None),
    "rsub": _handler_of_composition(lambda a, b, alpha=1: _apply("sub", b, a * alpha)),
    "square": _handler_of_composition(lambda a: a * a),
    "reciprocal": _handler_of_composition(lambda a: a.graph.constant(1) / a), "pow": _handler_of_composition(_pow),
    **dict.fromkeys(("clamp", "clamp_min"), _clamp(torch.clamp)),
    "clamp_max": lambda nodes, args, kwargs: HANDLERS["clamp"](nodes, (args[0], None, args[1]), kwargs),
    "hardtanh": _clamp(torch.nn.functional.hardtanh, -1.0, 1.0), "softplus": _handler_of_composition(_softplus),
    "log_sigmoid_forward": _handler_of_composition(
        lambda a: _apply("minimum", a, 0.0) - _apply("log1p", _apply("exp", -_apply("abs", a)))
    ),
    "elu": _handler_of_composition(_elu), "gelu": _handler_of_composition(_gelu),
    "silu": _handler_of_composition(lambda a: a * _apply("sigmoid", a)),
    "leaky_relu": _handler_of_composition(lambda a, slope=0.01: _apply("where", _apply("gt", a, 0.0), a, a * slope)),
    **dict.fromkeys(("clone", "alias", "_to_copy", "contiguous"), _identity),
    **{name: _handler_of_pointwise(name) for name in OPERATIONS if name not in ("stop", "copy", "and", "or", "not")},
    **{f"logical_{name}": _handler_of_pointwise(name) for name in ("and", "or", "not")},
}  # fmt: skip
