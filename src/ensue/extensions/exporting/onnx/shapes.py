"""How torch's operations become ONNX operators: those that make, cut, join and move values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ensue.extensions.exporting.onnx.graph import Unexportable, array_of
from ensue.extensions.exporting.onnx.operators import Handler, Tracing, cast

END = (1 << 63) - 1


def _same(trace: Tracing, out: Tensor, x: Tensor, *_: Any, **__: Any) -> str:
    return trace.of(x, out.dtype)


def _reshaped(trace: Tracing, out: Tensor, x: Tensor, *_: Any) -> Any:
    return trace.add("Reshape", trace.of(x), trace.sizes(out.shape))


def _expanded(trace: Tracing, out: Tensor, x: Tensor, *_: Any, **__: Any) -> Any:
    return trace.add("Expand", trace.of(x), trace.sizes(out.shape))


def _moved(trace: Tracing, out: Tensor, x: Tensor, dims: Any) -> Any:
    return trace.add("Transpose", trace.of(x), perm=[dim % x.dim() for dim in dims])


def _swapped(trace: Tracing, out: Tensor, x: Tensor, one: int = 0, other: int = 1) -> Any:
    order = list(range(x.dim()))
    order[one], order[other] = order[other], order[one]
    return _moved(trace, out, x, order) if x.dim() > 1 else trace.of(x)


def _widened(trace: Tracing, out: Tensor, x: Tensor, dim: int) -> Any:
    return trace.add("Unsqueeze", trace.of(x), trace.graph.constant([dim % out.dim()]))


def _squeezed(trace: Tracing, out: Tensor, x: Tensor, dim: Any = None) -> Any:
    dims = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = [d % x.dim() for d in dims if x.shape[d] == 1]
    return trace.add("Squeeze", trace.of(x), trace.graph.constant(gone)) if gone else trace.of(x)


def _slice(
    trace: Tracing, out: Tensor, x: Tensor, dim: int = 0, start: int | None = None, stop: int | None = None,
    step: int = 1,
) -> Any:  # fmt: skip
    begin, end = start or 0, END if stop is None else stop
    if begin == 0 and step == 1 and (end == END or end == x.shape[dim]):
        return trace.of(x)
    places = [trace.sizes([begin]), trace.sizes([end]), trace.graph.constant([dim % x.dim()])]
    return trace.add("Slice", trace.of(x), *places, trace.graph.constant([step]))


def _selected(trace: Tracing, out: Tensor, x: Tensor, dim: int, index: int) -> Any:
    return trace.add("Gather", trace.of(x), trace.graph.constant(index), axis=dim % x.dim())


def _split(trace: Tracing, out: Any, x: Tensor, sizes: Any, dim: int = 0) -> Any:
    if x.shape[dim] != sum(part.shape[dim] for part in out) or len(out) == 1:
        return [trace.of(x)]
    parts = trace.sizes([part.shape[dim] for part in out])
    return trace.add("Split", trace.of(x), parts, outputs=len(out), axis=dim % x.dim())


def _unbound(trace: Tracing, out: Any, x: Tensor, dim: int = 0) -> list[str]:
    return [_selected(trace, None, x, dim, index) for index in range(len(out))]  # type: ignore[arg-type]


def _joined(trace: Tracing, out: Tensor, parts: Any, dim: int = 0) -> Any:
    some = [part for part in parts if part.dim() == out.dim()]
    return trace.add("Concat", *(trace.of(part, out.dtype) for part in some), axis=dim % out.dim())


def _stacked(trace: Tracing, out: Tensor, parts: Any, dim: int = 0) -> Any:
    axis = trace.graph.constant([dim % out.dim()])
    wide = [trace.add("Unsqueeze", trace.of(part, out.dtype), axis) for part in parts]
    return trace.add("Concat", *wide, axis=dim % out.dim())


def _flipped(trace: Tracing, out: Tensor, x: Tensor, dims: Any) -> Any:
    found = trace.of(x)
    for dim in dims:
        ends = [trace.graph.constant([number]) for number in (-1, -END, dim % x.dim(), -1)]
        found = trace.add("Slice", found, *ends)
    return found


def _padded(trace: Tracing, out: Tensor, x: Tensor, pads: Any, value: float = 0.0) -> Any:
    before, after = [0] * x.dim(), [0] * x.dim()
    for number in range(len(pads) // 2):
        before[-1 - number], after[-1 - number] = pads[2 * number], pads[2 * number + 1]
    if x.dtype == torch.bool:
        found = trace.add("Pad", trace.of(x, torch.int32), trace.sizes(before + after), trace.of(value, torch.int32))
        return cast(trace, found, torch.bool)
    return trace.add("Pad", trace.of(x), trace.sizes(before + after), trace.of(value, x.dtype))


def _gathered(trace: Tracing, out: Tensor, x: Tensor, dim: int, index: Tensor) -> Any:
    return trace.add("GatherElements", trace.of(x), trace.of(index), axis=dim % x.dim())


def _added(trace: Tracing, out: Tensor, x: Tensor, dim: int, index: Tensor, values: Tensor) -> Any:
    given = (trace.of(x), trace.of(index), trace.of(values))
    return trace.add("ScatterElements", *given, axis=dim % x.dim(), reduction="add")


def _taken(trace: Tracing, out: Tensor, x: Tensor, dim: int, index: Tensor) -> Any:
    return trace.add("Gather", trace.of(x), trace.of(index), axis=dim % x.dim())


def _indexed(trace: Tracing, out: Tensor, x: Tensor, indices: Any) -> Any:
    """By whole numbers in the first places, or in one place."""
    given = [number for number, index in enumerate(indices) if index is not None]
    if any(indices[number].dtype == torch.bool for number in given):
        raise Unexportable("a choice by a mask, whose size depends on values")
    if len(given) == 1:
        return _taken(trace, out, x, given[0], indices[given[0]])
    if given != list(range(len(given))):
        raise Unexportable("a choice by several indices that do not come first")
    sizes = trace.sizes(
        torch.broadcast_shapes(  # type: ignore[no-untyped-call]
            *(indices[number].shape for number in given)
        )
    )
    last = trace.graph.constant([-1])
    wide = [trace.add("Expand", trace.of(indices[number]), sizes) for number in given]
    return trace.add(
        "GatherND", trace.of(x), trace.add("Concat", *(trace.add("Unsqueeze", w, last) for w in wide), axis=-1)
    )


def _looked_up(trace: Tracing, out: Tensor, weight: Tensor, ids: Tensor, *_: Any) -> Any:
    return trace.add("Gather", trace.of(weight), trace.of(ids), axis=0)


def _sorted(trace: Tracing, out: Any, x: Tensor, *rest: Any, **named: Any) -> Any:
    dim, descending = named.get("dim", rest[-2] if len(rest) > 1 else -1), named.get("descending", False)
    count = trace.sizes([x.shape[dim]])
    return trace.add("TopK", trace.of(x), count, outputs=2, axis=dim % x.dim(), largest=int(descending), sorted=1)


def _numbers(trace: Tracing, out: Tensor, *bounds: Any, **_: Any) -> Any:
    start, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if not all(isinstance(bound, int) for bound in (start, end, step)):
        raise Unexportable("a range of fractions")
    none = trace.graph.constant([0])
    ends = [trace.add("Squeeze", trace.sizes([bound]), none) for bound in (start, end, step)]
    found = trace.add("Range", *ends)
    return found if out.dtype == torch.int64 else cast(trace, found, out.dtype)


def _full(trace: Tracing, out: Tensor, value: Any) -> Any:
    number = trace.of(value, out.dtype)
    return trace.add("Expand", number, trace.sizes(out.shape)) if out.dim() else number


def _constant(trace: Tracing, out: Tensor, x: Tensor, *_: Any) -> Any:
    return trace.graph.constant(array_of(x), array_of(x).dtype)


SHAPE_HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("clone", "alias", "detach", "_to_copy", "contiguous", "lift_fresh_copy"), _same),
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "_reshape_alias", "flatten"), _reshaped),
    "expand": _expanded,
    "permute": _moved,
    "transpose": _swapped,
    "t": _swapped,
    "unsqueeze": _widened,
    "squeeze": _squeezed,
    "slice": _slice,
    "select": _selected,
    "split": _split,
    "split_with_sizes": _split,
    "unbind": _unbound,
    "cat": _joined,
    "stack": _stacked,
    "flip": _flipped,
    "constant_pad_nd": _padded,
    "gather": _gathered,
    "scatter_add": _added,
    "index_select": _taken,
    "index": _indexed,
    "embedding": _looked_up,
    "sort": _sorted,
    "arange": _numbers,
    "lift_fresh": _constant,
    **dict.fromkeys(("zeros", "new_zeros", "zeros_like"), lambda trace, out, *_, **__: _full(trace, out, 0)),
    **dict.fromkeys(("ones", "new_ones", "ones_like"), lambda trace, out, *_, **__: _full(trace, out, 1)),
    **dict.fromkeys(("full", "new_full", "full_like"), lambda trace, out, *args, **__: _full(trace, out, args[-1])),
    "scalar_tensor": lambda trace, out, value, **_: _full(trace, out, value),
}
