"""From a function of a model to an ONNX graph: it is run once on tensors without content, and each operation becomes
nodes.

Python runs as ever, so whatever a layer is written with is followed. What it does differently for other values (a test
of a number in a tensor) cannot be followed, and stops the trace. What it does differently for other sizes is frozen;
`checking.py` finds that. A loop over positions is none of these: `loops.py` has the layers that are such loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, _get_current_dispatch_mode

from ensue.extensions.exporting.onnx.graph import Graph, Unexportable, array_of
from ensue.extensions.exporting.onnx.operators import HANDLERS, cast
from ensue.extensions.exporting.onnx.shapes import SHAPE_HANDLERS
from ensue.extensions.exporting.onnx.sizes import Sizes

EVERY_HANDLER = {**HANDLERS, **SHAPE_HANDLERS}
NUMPY = {torch.float32: np.float32, torch.int64: np.int64, torch.int32: np.int32, torch.bool: np.bool_}
MOST_NODES = 20_000
"""The most nodes of a graph. A Transformer of 24 layers has a twentieth of that."""
SILENT = frozenset({"promote_types", "_assert_tensor_metadata", "_assert_async", "empty", "empty_like", "new_empty"})
"""Operations of which nothing is left."""


class Trace:
    """The graph in the making and the names of the tensors that stand for its values."""

    def __init__(self, sizes: Sizes, weights: Mapping[int, tuple[str, Tensor]]) -> None:
        """`weights`: the name and the numbers of each parameter and buffer, by the id of the tensor in its place."""
        self.graph = self.root = Graph()
        self.known_sizes, self.weights = sizes, weights
        self.names: dict[int, str] = {}
        self.owners: dict[str, Graph] = {}
        self.levels: list[Graph] = [self.root]
        self.kept: list[Any] = []  # alive, so that no other tensor gets the id of one of them
        self._transposed: dict[str, str] = {}

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """A node, as far outside of loops as what it reads allows."""
        owners = {id(self.owners.get(name, self.root)) for name in inputs}
        graph = next(level for level in reversed(self.levels) if id(level) in owners or level is self.root)
        if len(graph.nodes) == MOST_NODES:
            raise Unexportable(f"more than {MOST_NODES:,} operations, as from a loop of Python over positions")
        found = graph.add(op, *inputs, outputs=outputs, **attributes)
        for name in [found] if outputs == 1 else found:
            self.owners[name] = graph
        return found

    def of(self, value: Any, dtype: torch.dtype | None = None) -> str:
        """The name of a tensor's value, or of a number; in the type `dtype`."""
        if not isinstance(value, Tensor):
            dtype = dtype or (torch.float32 if isinstance(value, float) else torch.int64)
            if isinstance(value, int) and not isinstance(value, bool) and not self.known_sizes.is_fixed(value):
                size = self.add("Squeeze", self.known_sizes.value(self.root, value), self.graph.constant([0]))
                return size if dtype == torch.int64 else cast(self, size, dtype)
            return self.graph.constant(value, NUMPY[dtype])
        name = self._name(value)
        return name if dtype in (None, value.dtype) else cast(self, name, dtype)

    def _name(self, tensor: Tensor) -> str:
        if id(tensor) not in self.names:
            if id(tensor) not in self.weights and tensor.is_meta:
                raise Unexportable("a tensor that is neither an input nor a weight")
            name, numbers = self.weights.get(id(tensor), (self.root.name("constant"), tensor))
            self.names[id(tensor)] = self.root.weight(name, array_of(numbers))
            self.kept.append(tensor)
        return self.names[id(tensor)]

    def sizes(self, numbers: Sequence[int]) -> str:
        """A vector of sizes; each may be known at run time only."""
        if all(map(self.known_sizes.is_fixed, numbers)):
            return self.graph.constant(list(numbers))
        parts = [self.known_sizes.value(self.root, number) for number in numbers]
        return parts[0] if len(parts) == 1 else str(self.add("Concat", *parts, axis=0))

    def let(self, tensor: Tensor, name: str) -> None:
        """The tensor stands for this value."""
        self.names[id(tensor)] = name
        self.kept.append(tensor)

    def stand_in(self, sizes: Sequence[int], dtype: torch.dtype, name: str) -> Tensor:
        """A tensor without content that stands for this value."""
        with _disable_current_modes():
            tensor = torch.empty(*sizes, dtype=dtype, device="meta")
        self.let(tensor, name)
        return tensor

    def transposed(self, weight: Tensor) -> str:
        """A matrix, transposed once."""
        name = self.of(weight)
        if name not in self._transposed:
            self._transposed[name] = self.add("Transpose", name, perm=[1, 0])
        return self._transposed[name]

    @contextmanager
    def body(self) -> Iterator[Graph]:
        """The graph of a loop's body, which what happens inside goes to."""
        before, self.graph = self.graph, Graph(self.graph)
        self.levels.append(self.graph)
        try:
            yield self.graph
        finally:
            self.levels.pop()
            self.graph = before

    def input(self, graph: Graph, name: str) -> None:
        """The name belongs to this graph."""
        self.owners[name] = graph


@contextmanager
def operations_of(trace: Trace) -> Iterator[None]:
    """Inside, what torch is asked for goes into the graph."""
    with torch.no_grad(), _Operations(trace), _Products(trace):
        yield


class _Recorder:
    """Handles an operation; apart from the mode for the reason that `engine/trace.py` gives."""

    trace: Trace

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        try:
            out = func(*args, **kwargs)
        except (NotImplementedError, RuntimeError):  # of tensors that have content it would give something
            raise Unexportable(f"{name}, which depends on values") from None
        if name in SILENT or out is None:
            return out
        if name not in EVERY_HANDLER:
            if name.removesuffix("_") not in EVERY_HANDLER or not name.endswith("_"):
                raise Unexportable(f"the operation {name}")
            name = name.removesuffix("_")
        named = {key: value for key, value in kwargs.items() if key not in ("dtype", "device", "layout", "pin_memory")}
        found = EVERY_HANDLER[name](self.trace, out, *args, **named)
        if isinstance(out, Tensor):
            self.trace.let(out, found)
        else:
            for tensor, value in zip(out, found, strict=False):
                self.trace.let(tensor, value)
        return out


class _Operations(_Recorder, TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, trace: Trace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = trace


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor | None = None, dropout: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Scaled dot products as they are written; a query that may attend to nothing gets zeros."""
    if is_causal:
        rows, columns = (torch.arange(part.shape[-2], device=part.device) for part in (queries, keys))
        allowed = columns <= rows.unsqueeze(1)
    scores = (queries * (1 / math.sqrt(queries.shape[-1]) if scale is None else scale)) @ keys.transpose(-2, -1)
    if allowed is None or allowed.dtype != torch.bool:  # a mask of numbers is added
        return (scores if allowed is None else scores + allowed).softmax(-1) @ values
    weights = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1)
    return weights.masked_fill(~allowed, 0.0) @ values


def bag_of_rows(ids: Tensor, weight: Tensor, *, mode: str, per_sample_weights: Tensor, **_: Any) -> Tensor:
    """The weighted sums of rows, (B, N) to (B, K)."""
    assert mode == "sum"
    return (per_sample_weights.unsqueeze(1) @ F.embedding(ids, weight)).squeeze(1)


WRITTEN_OUT: dict[Any, Callable[..., Tensor]] = {
    F.scaled_dot_product_attention: attention,
    F.embedding_bag: bag_of_rows,
}
"""Functions of torch that are loops of their own below autograd, as products."""


class _Products(TorchFunctionMode):
    """Products as they are written, which torch would take apart into products of matrices and changes of shape."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = trace

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _get_current_dispatch_mode() is None:  # what is computed apart from the trace
            return func(*args, **kwargs)
        if func is F.linear:
            return self._linear(*args, **kwargs)
        if func in (torch.matmul, Tensor.matmul, Tensor.__matmul__):
            return self._known("MatMul", func, *args)
        if func in WRITTEN_OUT:
            with self:
                return WRITTEN_OUT[func](*args, **kwargs)
        return func(*args, **kwargs)

    def _known(self, op: str, func: Any, *args: Tensor) -> Tensor:
        with _disable_current_modes():
            out: Tensor = func(*args)
        self.trace.let(out, self.trace.add(op, *map(self.trace.of, args)))
        return out

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        with _disable_current_modes():
            out = F.linear(x, weight, bias)
        found = self.trace.add("MatMul", self.trace.of(x), self.trace.transposed(weight))
        self.trace.let(out, found if bias is None else self.trace.add("Add", found, self.trace.of(bias)))
        return out
