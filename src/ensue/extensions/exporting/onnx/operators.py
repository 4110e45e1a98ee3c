"""How torch's operations become ONNX operators, by their names below autograd: those of values.

A handler gets the graph in the making, what torch gave for tensors without content, and the arguments of the operation.
It returns the name of the value, or a list of names. `shapes.py` has the operations that move values about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ensue.extensions.exporting.onnx.graph import TYPES, Graph, Unexportable


class Tracing(Protocol):
    """The interface of the trace for handlers."""

    graph: Graph

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """A node in the graph."""

    def of(self, value: Any, dtype: torch.dtype | None = None) -> str:
        """The value of a tensor or a number, in this type."""

    def sizes(self, numbers: Any) -> str:
        """A vector of sizes."""


Handler = Callable[..., Any]
"""(trace, what torch gave, *arguments, **named) to a name, or to a list of names."""


def cast(trace: Tracing, value: str, dtype: torch.dtype) -> str:
    """The value in another type."""
    return str(trace.add("Cast", value, to=TYPES[dtype]))


def _of_one(op: str, **attributes: Any) -> Handler:
    return lambda trace, out, x, **_: trace.add(op, trace.of(x, out.dtype), **attributes)


def _of_two(op: str) -> Handler:
    def handle(trace: Tracing, out: Tensor, a: Any, b: Any, *, alpha: float = 1, **_: Any) -> Any:
        second = trace.of(b, out.dtype)
        if alpha != 1:
            second = trace.add("Mul", second, trace.of(alpha, out.dtype))
        return trace.add(op, trace.of(a, out.dtype), second)

    return handle


def _compared(op: str) -> Handler:
    def handle(trace: Tracing, out: Tensor, a: Any, b: Any) -> Any:
        dtype = torch.result_type(a, b)
        if dtype == torch.bool and op != "Equal":
            dtype = torch.int64
        return trace.add(op, trace.of(a, dtype), trace.of(b, dtype))

    return handle


def _logical(op: str) -> Handler:
    def handle(trace: Tracing, out: Tensor, a: Any, b: Any) -> Any:
        if out.dtype != torch.bool:
            raise Unexportable(f"{op} of whole numbers")
        return trace.add(op, trace.of(a, torch.bool), trace.of(b, torch.bool))

    return handle


def _unequal(trace: Tracing, out: Tensor, a: Any, b: Any) -> Any:
    return trace.add("Not", _compared("Equal")(trace, out, a, b))


def _divided(trace: Tracing, out: Tensor, a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode not in (None, "floor") or (rounding_mode == "floor" and not out.is_floating_point()):
        return _floor_divided(trace, out, a, b)
    found = trace.add("Div", trace.of(a, out.dtype), trace.of(b, out.dtype))
    return trace.add("Floor", found) if rounding_mode else found


def _floor_divided(trace: Tracing, out: Tensor, a: Any, b: Any) -> Any:
    """Of whole numbers; (a - a mod b) / b, since ONNX rounds to zero."""
    first, second = trace.of(a, out.dtype), trace.of(b, out.dtype)
    return trace.add("Div", trace.add("Sub", first, trace.add("Mod", first, second)), second)


def _shifted(trace: Tracing, out: Tensor, a: Any, bits: int) -> Any:
    return _floor_divided(trace, out, a, 1 << bits)


def _counted(trace: Tracing, out: Tensor, x: Tensor, dim: Any = None) -> Any:
    nonzero = trace.add("Cast", trace.of(x, torch.bool), to=TYPES[torch.int64])
    axes = [] if dim is None else [trace.graph.constant([dim] if isinstance(dim, int) else list(dim))]
    return trace.add("ReduceSum", nonzero, *axes, keepdims=0)


def _power(trace: Tracing, out: Tensor, a: Any, exponent: Any) -> Any:
    return trace.add("Pow", trace.of(a, out.dtype), trace.of(exponent, out.dtype))


def _clamped(trace: Tracing, out: Tensor, x: Tensor, lower: Any = None, upper: Any = None) -> Any:
    found = trace.of(x, out.dtype)
    found = found if lower is None else trace.add("Max", found, trace.of(lower, out.dtype))
    return found if upper is None else trace.add("Min", found, trace.of(upper, out.dtype))


def _softplus(trace: Tracing, out: Tensor, x: Tensor, beta: float = 1, threshold: float = 20) -> Any:
    if beta != 1:
        raise Unexportable("softplus with a factor")
    return trace.add("Softplus", trace.of(x))


def _gelu(trace: Tracing, out: Tensor, x: Tensor, approximate: str = "none") -> Any:
    return trace.add("Gelu", trace.of(x), approximate=approximate)


def _silu(trace: Tracing, out: Tensor, x: Tensor) -> Any:
    return trace.add("Mul", trace.of(x), trace.add("Sigmoid", trace.of(x)))


def _log_of_sum(trace: Tracing, out: Tensor, a: Tensor, b: Tensor) -> Any:
    """log(exp a + exp b); -∞ where both are."""
    first, second = trace.of(a), trace.of(b)
    least = trace.of(torch.finfo(out.dtype).min, out.dtype)
    most = trace.add("Max", first, second, least)
    parts = [trace.add("Exp", trace.add("Sub", part, most)) for part in (first, second)]
    return trace.add("Add", most, trace.add("Log", trace.add("Add", *parts)))


def _log_sigmoid(trace: Tracing, out: Any, x: Tensor) -> list[str]:
    return [trace.add("Neg", trace.add("Softplus", trace.add("Neg", trace.of(x))))]


def _between(trace: Tracing, out: Tensor, a: Tensor, b: Tensor, share: Any) -> Any:
    way = trace.add("Sub", trace.of(b), trace.of(a))
    return trace.add("Add", trace.of(a), trace.add("Mul", trace.of(share, out.dtype), way))


def _chosen(trace: Tracing, out: Tensor, condition: Tensor, a: Any, b: Any) -> Any:
    return trace.add("Where", trace.of(condition), trace.of(a, out.dtype), trace.of(b, out.dtype))


def _filled(trace: Tracing, out: Tensor, x: Tensor, mask: Tensor, value: Any) -> Any:
    return _chosen(trace, out, mask, value, x)


def _reduced(op: str) -> Handler:
    def handle(trace: Tracing, out: Tensor, x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
        dims = [dim] if isinstance(dim, int) else dim
        axes = [trace.graph.constant(list(dims))] if dims else []
        dtype = torch.int64 if out.dtype == torch.bool else out.dtype
        found = trace.add(op, trace.of(x, dtype), *axes, keepdims=int(keepdim))
        return cast(trace, found, out.dtype) if dtype != out.dtype else found

    return handle


def _norm(trace: Tracing, out: Tensor, x: Tensor, order: float = 2, dim: Any = None, keepdim: bool = False) -> Any:
    if order != 2:
        raise Unexportable(f"a norm of order {order}")
    return _reduced("ReduceL2")(trace, out, x, dim, keepdim)


def _largest(trace: Tracing, out: Any, x: Tensor, dim: int, keepdim: bool = False) -> Any:
    index = trace.add("ArgMax", trace.of(x), axis=dim, keepdims=int(keepdim))
    return [trace.add("ReduceMax", trace.of(x), trace.graph.constant([dim]), keepdims=int(keepdim)), index]


def _place_of_largest(trace: Tracing, out: Tensor, x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return trace.add("ArgMax", trace.of(x), axis=dim, keepdims=int(keepdim))


def _running_sum(trace: Tracing, out: Tensor, x: Tensor, dim: int, **_: Any) -> Any:
    return trace.add("CumSum", trace.of(x, out.dtype), trace.graph.constant(dim))


def _softmax(op: str) -> Handler:
    return lambda trace, out, x, dim, *_: trace.add(op, trace.of(x, out.dtype), axis=dim)


def _layer_norm(trace: Tracing, out: Any, x: Tensor, shape: Any, gain: Any, bias: Any, epsilon: float) -> list[str]:
    gain = trace.graph.constant(np.ones(shape), np.float32) if gain is None else trace.of(gain)
    given = [gain] if bias is None else [gain, trace.of(bias)]
    return [trace.add("LayerNormalization", trace.of(x), *given, axis=-len(shape), epsilon=epsilon)]


def _product(trace: Tracing, out: Tensor, a: Tensor, b: Tensor) -> Any:
    return trace.add("MatMul", trace.of(a), trace.of(b))


def _product_and_bias(trace: Tracing, out: Tensor, bias: Tensor, a: Tensor, b: Tensor) -> Any:
    return trace.add("Add", _product(trace, out, a, b), trace.of(bias))


def _without_missing(trace: Tracing, out: Tensor, x: Tensor, nan: float | None = None, *others: Any) -> Any:
    """NaN replaced, and what is infinite by the largest number."""
    value = trace.of(x)
    known = trace.add("Where", trace.add("IsNaN", value), trace.of(float(nan or 0.0), out.dtype), value)
    ends = torch.finfo(out.dtype)
    largest, least = (default if given is None else given for default, given in zip(
        (ends.max, ends.min), (*others, None, None), strict=False
    ))  # fmt: skip
    return trace.add("Min", trace.add("Max", known, trace.of(least, out.dtype)), trace.of(largest, out.dtype))


def _convolved(
    trace: Tracing, out: Tensor, x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any,
    is_transposed: bool, _: Any, groups: int,
) -> Any:  # fmt: skip
    if is_transposed:
        raise Unexportable("a transposed convolution")
    given = [trace.of(part) for part in (x, weight, bias) if part is not None]
    return trace.add(
        "Conv", *given, strides=list(stride), pads=[*padding, *padding], dilations=list(dilation), group=groups
    )


HANDLERS: dict[str, Handler] = {
    **{name: _of_two(op) for name, op in {"add": "Add", "sub": "Sub", "mul": "Mul", "remainder": "Mod"}.items()},
    "rsub": lambda trace, out, a, b, alpha=1: _of_two("Sub")(trace, out, b, a, alpha=alpha),
    "maximum": _of_two("Max"),
    "minimum": _of_two("Min"),
    "div": _divided,
    "floor_divide": _floor_divided,
    **dict.fromkeys(("__rshift__", "bitwise_right_shift"), _shifted),
    "count_nonzero": _counted,
    "pow": _power,
    "square": lambda trace, out, x: trace.add("Mul", trace.of(x), trace.of(x)),
    "rsqrt": lambda trace, out, x: trace.add("Reciprocal", trace.add("Sqrt", trace.of(x, out.dtype))),
    "log1p": lambda trace, out, x: trace.add("Log", trace.add("Add", trace.of(x), trace.of(1.0, out.dtype))),
    **{
        name: _of_one(op)
        for name, op in {
            "neg": "Neg", "sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu", "exp": "Exp", "log": "Log",
            "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "erf": "Erf", "abs": "Abs", "reciprocal": "Reciprocal",
            "sign": "Sign", "ceil": "Ceil", "floor": "Floor", "logical_not": "Not", "bitwise_not": "Not",
        }.items()
    },
    **{name: _compared(op) for name, op in {
        "gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual", "eq": "Equal",
    }.items()},
    "ne": _unequal,
    **{f"{kind}_{name}": _logical(op) for kind in ("logical", "bitwise")
       for name, op in {"and": "And", "or": "Or", "xor": "Xor"}.items()},
    "clamp": _clamped,
    "clamp_min": _clamped,
    "clamp_max": lambda trace, out, x, upper: _clamped(trace, out, x, None, upper),
    "hardtanh": lambda trace, out, x, lower=-1.0, upper=1.0: _clamped(trace, out, x, lower, upper),
    "softplus": _softplus,
    "gelu": _gelu,
    "silu": _silu,
    "logaddexp": _log_of_sum,
    "log_sigmoid_forward": _log_sigmoid,
    "lerp": _between,
    "where": _chosen,
    "masked_fill": _filled,
    "nan_to_num": _without_missing,
    **{name: _reduced(op) for name, op in {
        "sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin", "any": "ReduceMax",
        "all": "ReduceMin", "prod": "ReduceProd",
    }.items()},
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "max": _largest,
    "argmax": _place_of_largest,
    "cumsum": _running_sum,
    "_softmax": _softmax("Softmax"),
    "_safe_softmax": _softmax("Softmax"),
    "_log_softmax": _softmax("LogSoftmax"),
    "native_layer_norm": _layer_norm,
    "mm": _product,
    "bmm": _product,
    "matmul": _product,
    "convolution": _convolved,
    "addmm": _product_and_bias,
    "baddbmm": _product_and_bias,
}  # fmt: skip
