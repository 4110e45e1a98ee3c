"""Handlers that add the ONNX operators of ATen operations to a graph.

The arguments of a handler are the trace, the meta tensor that torch returned, and the arguments of the operation. A
handler returns the name of the value, or a list of names.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.extensions.exporting.onnx.graph import TYPES, Trace, Unexportable, to_numpy

Handler = Callable[..., Any]
"""A function from (trace, meta result, *arguments, **keywords) to a name or a list of names."""


def _unary(op: str, **attributes: Any) -> Handler:
    return lambda trace, out, x, **_: trace.add(op, trace.of(x, out.dtype), **attributes)


def _binary(op: str) -> Handler:
    def handle(trace: Trace, out: Tensor, a: Any, b: Any, *, alpha: float = 1, **_: Any) -> Any:
        second = trace.of(b, out.dtype)
        if alpha != 1:
            second = trace.add("Mul", second, trace.of(alpha, out.dtype))
        return trace.add(op, trace.of(a, out.dtype), second)

    return handle


def _comparison(op: str) -> Handler:
    def handle(trace: Trace, out: Tensor, a: Any, b: Any) -> Any:
        dtype = torch.result_type(a, b)
        if dtype == torch.bool and op != "Equal":
            dtype = torch.int64
        return trace.add(op, trace.of(a, dtype), trace.of(b, dtype))

    return handle


def _logical(op: str) -> Handler:
    def handle(trace: Trace, out: Tensor, a: Any, b: Any) -> Any:
        if out.dtype != torch.bool:
            raise Unexportable(f"{op} of integers")
        return trace.add(op, trace.of(a, torch.bool), trace.of(b, torch.bool))

    return handle


def _divide(trace: Trace, out: Tensor, a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "trunc":
        raise Unexportable("division that rounds towards zero")
    if rounding_mode == "floor" and not out.is_floating_point():
        return _floor_divide(trace, out, a, b)
    result = trace.add("Div", trace.of(a, out.dtype), trace.of(b, out.dtype))
    return trace.add("Floor", result) if rounding_mode else result


def _floor_divide(trace: Trace, out: Tensor, a: Any, b: Any) -> Any:
    first, second = trace.of(a, out.dtype), trace.of(b, out.dtype)
    return trace.add("Div", trace.add("Sub", first, trace.add("Mod", first, second)), second)


def _count_nonzero(trace: Trace, out: Tensor, x: Tensor, dim: Any = None) -> Any:
    nonzero = trace.add("Cast", trace.of(x, torch.bool), to=TYPES[torch.int64])
    axes = [] if dim is None else [trace.graph.constant([dim] if isinstance(dim, int) else list(dim))]
    return trace.add("ReduceSum", nonzero, *axes, keepdims=0)


def _clamp(trace: Trace, out: Tensor, x: Tensor, lower: Any = None, upper: Any = None) -> Any:
    result = trace.of(x, out.dtype)
    result = result if lower is None else trace.add("Max", result, trace.of(lower, out.dtype))
    return result if upper is None else trace.add("Min", result, trace.of(upper, out.dtype))


def _softplus(trace: Trace, out: Tensor, x: Tensor, beta: float = 1, threshold: float = 20) -> Any:
    if beta != 1:
        raise Unexportable("softplus with a beta other than 1")
    return trace.add("Softplus", trace.of(x))


def _logaddexp(trace: Trace, out: Tensor, a: Tensor, b: Tensor) -> Any:
    first, second = trace.of(a), trace.of(b)
    minimum = trace.of(torch.finfo(out.dtype).min, out.dtype)
    maximum = trace.add("Max", first, second, minimum)
    exponentials = [trace.add("Exp", trace.add("Sub", value, maximum)) for value in (first, second)]
    return trace.add("Add", maximum, trace.add("Log", trace.add("Add", *exponentials)))


def _lerp(trace: Trace, out: Tensor, a: Tensor, b: Tensor, weight: Any) -> Any:
    difference = trace.add("Sub", trace.of(b), trace.of(a))
    return trace.add("Add", trace.of(a), trace.add("Mul", trace.of(weight, out.dtype), difference))


def _where(trace: Trace, out: Tensor, condition: Tensor, a: Any, b: Any) -> Any:
    return trace.add("Where", trace.of(condition), trace.of(a, out.dtype), trace.of(b, out.dtype))


def _reduction(op: str) -> Handler:
    def handle(trace: Trace, out: Tensor, x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
        dims = [dim] if isinstance(dim, int) else dim
        axes = [trace.graph.constant(list(dims))] if dims else []
        dtype = torch.int64 if out.dtype == torch.bool else out.dtype
        result = trace.add(op, trace.of(x, dtype), *axes, keepdims=int(keepdim))
        return trace.cast(result, out.dtype) if dtype != out.dtype else result

    return handle


def _norm(trace: Trace, out: Tensor, x: Tensor, order: float = 2, dim: Any = None, keepdim: bool = False) -> Any:
    if order != 2:
        raise Unexportable(f"a norm of order {order}")
    return _reduction("ReduceL2")(trace, out, x, dim, keepdim)


def _max_over_dim(trace: Trace, out: Any, x: Tensor, dim: int, keepdim: bool = False) -> Any:
    index = trace.add("ArgMax", trace.of(x), axis=dim, keepdims=int(keepdim))
    return [trace.add("ReduceMax", trace.of(x), trace.graph.constant([dim]), keepdims=int(keepdim)), index]


def _softmax(op: str) -> Handler:
    return lambda trace, out, x, dim, *_: trace.add(op, trace.of(x, out.dtype), axis=dim)


def _layer_norm(trace: Trace, out: Any, x: Tensor, shape: Any, gain: Any, bias: Any, epsilon: float) -> list[str]:
    gain = trace.graph.constant(np.ones(shape), np.float32) if gain is None else trace.of(gain)
    parameters = [gain] if bias is None else [gain, trace.of(bias)]
    return [trace.add("LayerNormalization", trace.of(x), *parameters, axis=-len(shape), epsilon=epsilon)]


def _matmul(trace: Trace, out: Tensor, a: Tensor, b: Tensor) -> Any:
    return trace.add("MatMul", trace.of(a), trace.of(b))


def _addmm(trace: Trace, out: Tensor, bias: Tensor, a: Tensor, b: Tensor) -> Any:
    return trace.add("Add", _matmul(trace, out, a, b), trace.of(bias))


def _nan_to_num(trace: Trace, out: Tensor, x: Tensor, nan: float | None = None, *infinities: Any) -> Any:
    value = trace.of(x)
    number = trace.add("Where", trace.add("IsNaN", value), trace.of(float(nan or 0.0), out.dtype), value)
    posinf, neginf = (*infinities, None, None)[:2]
    maximum = torch.finfo(out.dtype).max if posinf is None else posinf
    minimum = torch.finfo(out.dtype).min if neginf is None else neginf
    return trace.add("Min", trace.add("Max", number, trace.of(minimum, out.dtype)), trace.of(maximum, out.dtype))


def _convolution(
    trace: Trace, out: Tensor, x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any,
    is_transposed: bool, _: Any, groups: int,
) -> Any:  # fmt: skip
    if is_transposed:
        raise Unexportable("a transposed convolution")
    inputs = [trace.of(tensor) for tensor in (x, weight, bias) if tensor is not None]
    return trace.add(
        "Conv", *inputs, strides=list(stride), pads=[*padding, *padding], dilations=list(dilation), group=groups
    )


MAX_INT64 = (1 << 63) - 1


def _permute(trace: Trace, out: Tensor, x: Tensor, dims: Any) -> Any:
    return trace.add("Transpose", trace.of(x), perm=[dim % x.dim() for dim in dims])


def _transpose(trace: Trace, out: Tensor, x: Tensor, dim0: int = 0, dim1: int = 1) -> Any:
    order = list(range(x.dim()))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return _permute(trace, out, x, order) if x.dim() > 1 else trace.of(x)


def _squeeze(trace: Trace, out: Tensor, x: Tensor, dim: Any = None) -> Any:
    dims = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    removed = [d % x.dim() for d in dims if x.shape[d] == 1]
    return trace.add("Squeeze", trace.of(x), trace.graph.constant(removed)) if removed else trace.of(x)


def _slice(
    trace: Trace, out: Tensor, x: Tensor, dim: int = 0, start: int | None = None, stop: int | None = None,
    step: int = 1,
) -> Any:  # fmt: skip
    begin, end = start or 0, MAX_INT64 if stop is None else stop
    if begin == 0 and step == 1 and (end == MAX_INT64 or end == x.shape[dim]):
        return trace.of(x)
    bounds = [trace.sizes([begin]), trace.sizes([end]), trace.graph.constant([dim % x.dim()])]
    return trace.add("Slice", trace.of(x), *bounds, trace.graph.constant([step]))


def _select(trace: Trace, out: Tensor, x: Tensor, dim: int, index: int) -> Any:
    return trace.add("Gather", trace.of(x), trace.graph.constant(index), axis=dim % x.dim())


def _split(trace: Trace, out: Any, x: Tensor, sizes: Any, dim: int = 0) -> Any:
    if x.shape[dim] != sum(chunk.shape[dim] for chunk in out) or len(out) == 1:
        return [trace.of(x)]
    lengths = trace.sizes([chunk.shape[dim] for chunk in out])
    return trace.add("Split", trace.of(x), lengths, outputs=len(out), axis=dim % x.dim())


def _unbind(trace: Trace, out: Any, x: Tensor, dim: int = 0) -> list[str]:
    return [_select(trace, None, x, dim, index) for index in range(len(out))]  # type: ignore[arg-type]


def _cat(trace: Trace, out: Tensor, tensors: Any, dim: int = 0) -> Any:
    values = [trace.of(tensor, out.dtype) for tensor in tensors if tensor.dim() == out.dim()]
    return trace.add("Concat", *values, axis=dim % out.dim())


def _stack(trace: Trace, out: Tensor, tensors: Any, dim: int = 0) -> Any:
    axis = trace.graph.constant([dim % out.dim()])
    values = [trace.add("Unsqueeze", trace.of(tensor, out.dtype), axis) for tensor in tensors]
    return trace.add("Concat", *values, axis=dim % out.dim())


def _flip(trace: Trace, out: Tensor, x: Tensor, dims: Any) -> Any:
    result = trace.of(x)
    for dim in dims:
        ends = [trace.graph.constant([number]) for number in (-1, -MAX_INT64, dim % x.dim(), -1)]
        result = trace.add("Slice", result, *ends)
    return result


def _pad(trace: Trace, out: Tensor, x: Tensor, pads: Any, value: float = 0.0) -> Any:
    before, after = [0] * x.dim(), [0] * x.dim()
    for number in range(len(pads) // 2):
        before[-1 - number], after[-1 - number] = pads[2 * number], pads[2 * number + 1]
    if x.dtype == torch.bool:
        result = trace.add("Pad", trace.of(x, torch.int32), trace.sizes(before + after), trace.of(value, torch.int32))
        return trace.cast(result, torch.bool)
    return trace.add("Pad", trace.of(x), trace.sizes(before + after), trace.of(value, x.dtype))


def _scatter_add(trace: Trace, out: Tensor, x: Tensor, dim: int, index: Tensor, values: Tensor) -> Any:
    inputs = (trace.of(x), trace.of(index), trace.of(values))
    return trace.add("ScatterElements", *inputs, axis=dim % x.dim(), reduction="add")


def _index_select(trace: Trace, out: Tensor, x: Tensor, dim: int, index: Tensor) -> Any:
    return trace.add("Gather", trace.of(x), trace.of(index), axis=dim % x.dim())


def _index(trace: Trace, out: Tensor, x: Tensor, indices: Any) -> Any:
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    if any(indices[dim].dtype == torch.bool for dim in dims):
        raise Unexportable("indexing by a boolean mask")
    if len(dims) == 1:
        return _index_select(trace, out, x, dims[0], indices[dims[0]])
    if dims != list(range(len(dims))):
        raise Unexportable("indexing by several tensors that are not in the first dimensions")
    sizes = trace.sizes(torch.broadcast_shapes(*[indices[dim].shape for dim in dims]))  # type: ignore[no-untyped-call]
    last = trace.graph.constant([-1])
    expanded = [trace.add("Expand", trace.of(indices[dim]), sizes) for dim in dims]
    x_name, columns = trace.of(x), [trace.add("Unsqueeze", index, last) for index in expanded]
    return trace.add("GatherND", x_name, trace.add("Concat", *columns, axis=-1))


def _sort(trace: Trace, out: Any, x: Tensor, *arguments: Any, **keywords: Any) -> Any:
    dim = keywords.get("dim", arguments[-2] if len(arguments) > 1 else -1)
    descending = keywords.get("descending", False)
    count = trace.sizes([x.shape[dim]])
    return trace.add("TopK", trace.of(x), count, outputs=2, axis=dim % x.dim(), largest=int(descending), sorted=1)


def _arange(trace: Trace, out: Tensor, *bounds: Any, **_: Any) -> Any:
    start, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if not all(isinstance(bound, int) for bound in (start, end, step)):
        raise Unexportable("arange with bounds that are not integers")
    axis = trace.graph.constant([0])
    scalars = [trace.add("Squeeze", trace.sizes([bound]), axis) for bound in (start, end, step)]
    result = trace.add("Range", *scalars)
    return result if out.dtype == torch.int64 else trace.cast(result, out.dtype)


def _full(trace: Trace, out: Tensor, value: Any) -> Any:
    number = trace.of(value, out.dtype)
    return trace.add("Expand", number, trace.sizes(out.shape)) if out.dim() else number


HANDLERS: dict[str, Handler] = {
    **{name: _binary(op) for name, op in {"add": "Add", "sub": "Sub", "mul": "Mul", "remainder": "Mod"}.items()},
    "rsub": lambda trace, out, a, b, alpha=1: _binary("Sub")(trace, out, b, a, alpha=alpha),
    "maximum": _binary("Max"), "minimum": _binary("Min"), "div": _divide, "floor_divide": _floor_divide,
    **dict.fromkeys(
        ("__rshift__", "bitwise_right_shift"), lambda trace, out, a, bits: _floor_divide(trace, out, a, 1 << bits)
    ),
    "count_nonzero": _count_nonzero,
    "pow": lambda trace, out, a, exponent: trace.add("Pow", trace.of(a, out.dtype), trace.of(exponent, out.dtype)),
    "square": lambda trace, out, x: trace.add("Mul", trace.of(x), trace.of(x)),
    "rsqrt": lambda trace, out, x: trace.add("Reciprocal", trace.add("Sqrt", trace.of(x, out.dtype))),
    "log1p": lambda trace, out, x: trace.add("Log", trace.add("Add", trace.of(x), trace.of(1.0, out.dtype))),
    **{
        name: _unary(op)
        for name, op in {
            "neg": "Neg", "sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu", "exp": "Exp", "log": "Log",
            "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "erf": "Erf", "abs": "Abs", "reciprocal": "Reciprocal",
            "sign": "Sign", "ceil": "Ceil", "floor": "Floor", "logical_not": "Not", "bitwise_not": "Not",
        }.items()
    },
    **{name: _comparison(op) for name, op in {
        "gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual", "eq": "Equal",
    }.items()},
    "ne": lambda trace, out, a, b: trace.add("Not", _comparison("Equal")(trace, out, a, b)),
    **{f"{kind}_{name}": _logical(op) for kind in ("logical", "bitwise")
       for name, op in {"and": "And", "or": "Or", "xor": "Xor"}.items()},
    "clamp": _clamp, "clamp_min": _clamp,
    "clamp_max": lambda trace, out, x, upper: _clamp(trace, out, x, None, upper),
    "hardtanh": lambda trace, out, x, lower=-1.0, upper=1.0: _clamp(trace, out, x, lower, upper),
    "softplus": _softplus,
    "gelu": lambda trace, out, x, approximate="none": trace.add("Gelu", trace.of(x), approximate=approximate),
    "silu": lambda trace, out, x: trace.add("Mul", trace.of(x), trace.add("Sigmoid", trace.of(x))),
    "logaddexp": _logaddexp,
    "log_sigmoid_forward": lambda trace, out, x: [
        trace.add("Neg", trace.add("Softplus", trace.add("Neg", trace.of(x))))
    ],
    "lerp": _lerp,
    "where": _where,
    "masked_fill": lambda trace, out, x, mask, value: _where(trace, out, mask, value, x),
    "nan_to_num": _nan_to_num,
    **{name: _reduction(op) for name, op in {
        "sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin", "any": "ReduceMax",
        "all": "ReduceMin", "prod": "ReduceProd",
    }.items()},
    "linalg_vector_norm": _norm, "norm": _norm, "max": _max_over_dim,
    "argmax": lambda trace, out, x, dim, keepdim=False: trace.add(
        "ArgMax", trace.of(x), axis=dim, keepdims=int(keepdim)
    ),
    "cumsum": lambda trace, out, x, dim, **_: trace.add("CumSum", trace.of(x, out.dtype), trace.graph.constant(dim)),
    "_softmax": _softmax("Softmax"), "_safe_softmax": _softmax("Softmax"), "_log_softmax": _softmax("LogSoftmax"),
    "native_layer_norm": _layer_norm, "convolution": _convolution,
    "mm": _matmul, "bmm": _matmul, "matmul": _matmul, "addmm": _addmm, "baddbmm": _addmm,
    **dict.fromkeys(
        ("clone", "alias", "detach", "_to_copy", "contiguous", "lift_fresh_copy"),
        lambda trace, out, x, *_, **__: trace.of(x, out.dtype),
    ),
    **dict.fromkeys(
        ("view", "_unsafe_view", "reshape", "_reshape_alias", "flatten"),
        lambda trace, out, x, *_: trace.add("Reshape", trace.of(x), trace.sizes(out.shape)),
    ),
    "expand": lambda trace, out, x, *_, **__: trace.add("Expand", trace.of(x), trace.sizes(out.shape)),
    "permute": _permute, "transpose": _transpose, "t": _transpose,
    "unsqueeze": lambda trace, out, x, dim: trace.add(
        "Unsqueeze", trace.of(x), trace.graph.constant([dim % out.dim()])
    ),
    "squeeze": _squeeze, "slice": _slice, "select": _select, "split": _split, "split_with_sizes": _split,
    "unbind": _unbind, "cat": _cat, "stack": _stack, "flip": _flip, "constant_pad_nd": _pad,
    "gather": lambda trace, out, x, dim, index: trace.add(
        "GatherElements", trace.of(x), trace.of(index), axis=dim % x.dim()
    ),
    "scatter_add": _scatter_add, "index_select": _index_select, "index": _index,
    "embedding": lambda trace, out, weight, ids, *_: trace.add("Gather", trace.of(weight), trace.of(ids), axis=0),
    "sort": _sort, "arange": _arange,
    "lift_fresh": lambda trace, out, x, *_: trace.graph.constant(to_numpy(x), to_numpy(x).dtype),
    **dict.fromkeys(("zeros", "new_zeros", "zeros_like"), lambda trace, out, *_, **__: _full(trace, out, 0)),
    **dict.fromkeys(("ones", "new_ones", "ones_like"), lambda trace, out, *_, **__: _full(trace, out, 1)),
    **dict.fromkeys(("full", "new_full", "full_like"), lambda trace, out, *args, **__: _full(trace, out, args[-1])),
    "scalar_tensor": lambda trace, out, value, **_: _full(trace, out, value),
}  # fmt: skip
