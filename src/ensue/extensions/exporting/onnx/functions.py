"""Conversion of a function to ONNX: the function runs once on meta tensors, and ATen operations add nodes to a graph.

Control flow that depends on values raises Unexportable. Control flow that depends on sizes is fixed to the traced
branch. Therefore `writing.py` compares the graph with the model at several sizes.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import partial
from typing import Any
from unittest.mock import patch

import onnx
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, _get_current_dispatch_mode

from ensue.extensions.exporting.onnx import graph
from ensue.extensions.exporting.onnx.loops import convert_loops, scan
from ensue.extensions.exporting.onnx.operators import HANDLERS
from ensue.models import tag_heads
from ensue.models.classifier import Classifier
from ensue.models.tagger import Tagger
from ensue.nn import AdditiveAttention, CopyingHead, HighwayCharacterCNN, LearnedPositions
from ensue.nn.border import unchecked
from ensue.nn.heads import chain, crf
from ensue.nn.heads.chain import last_positions, real_positions
from ensue.nn.layer import mask_padding
from ensue.tasks.contract.description import TensorSpec
from ensue.types import State

IGNORED = frozenset({"promote_types", "_assert_tensor_metadata", "_assert_async", "empty", "empty_like", "new_empty"})
"""The operations for which no node is added."""


class _Recorder:
    """The dispatch handler of `_OperationMode`. If that class defined the handler, torch would import its compiler."""

    trace: graph.Trace

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        try:
            out = func(*args, **kwargs)
        except (NotImplementedError, RuntimeError):  # meta tensors have no values
            raise graph.Unexportable(f"{name}, which depends on values") from None
        if name in IGNORED or out is None:
            return out
        if name not in HANDLERS:
            if name.removesuffix("_") not in HANDLERS or not name.endswith("_"):
                raise graph.Unexportable(f"the operation {name}")
            name = name.removesuffix("_")
        for key in ("dtype", "device", "layout", "pin_memory"):
            kwargs.pop(key, None)
        result = HANDLERS[name](self.trace, out, *args, **kwargs)
        if isinstance(out, Tensor):
            self.trace.bind(out, result)
        else:
            for tensor, value in zip(out, result, strict=False):
                self.trace.bind(tensor, value)
        return out


class _OperationMode(_Recorder, TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, trace: graph.Trace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = trace


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, dropout: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Return scaled dot-product attention, with zeros for queries that may not attend to any key."""
    if is_causal:
        rows, columns = (torch.arange(tensor.shape[-2], device=tensor.device) for tensor in (queries, keys))
        mask = columns <= rows.unsqueeze(1)
    scores = (queries * (1 / math.sqrt(queries.shape[-1]) if scale is None else scale)) @ keys.transpose(-2, -1)
    if mask is None or mask.dtype != torch.bool:  # an additive mask
        return (scores if mask is None else scores + mask).softmax(-1) @ values
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    return weights.masked_fill(~mask, 0.0) @ values


def embedding_bag(ids: Tensor, weight: Tensor, *, mode: str, per_sample_weights: Tensor, **_: Any) -> Tensor:
    """Return the weighted sums (B, K) of the vectors of ids (B, N)."""
    assert mode == "sum"
    return (per_sample_weights.unsqueeze(1) @ F.embedding(ids, weight)).squeeze(1)


REPLACEMENTS: dict[Any, Callable[..., Tensor]] = {
    F.scaled_dot_product_attention: attention,
    F.embedding_bag: embedding_bag,
}
"""Replacements of functions of torch that have no equivalent in ONNX."""


class _ProductMode(TorchFunctionMode):
    """A mode that adds a product as one node. The ATen operations of the product would add several nodes."""

    def __init__(self, trace: graph.Trace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = trace

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _get_current_dispatch_mode() is None:  # the call is not traced
            return func(*args, **kwargs)
        if func is F.linear:
            return self._linear(*args, **kwargs)
        if func in (torch.matmul, Tensor.matmul, Tensor.__matmul__):
            return self._matmul(*args)
        if func in REPLACEMENTS:
            with self:
                return REPLACEMENTS[func](*args, **kwargs)
        return func(*args, **kwargs)

    def _matmul(self, a: Tensor, b: Tensor) -> Tensor:
        with _disable_current_modes():
            out = torch.matmul(a, b)
        self.trace.bind(out, self.trace.add("MatMul", self.trace.of(a), self.trace.of(b)))
        return out

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        with _disable_current_modes():
            out = F.linear(x, weight, bias)
        product = self.trace.add("MatMul", self.trace.of(x), self.trace.transposed(weight))
        self.trace.bind(out, product if bias is None else self.trace.add("Add", product, self.trace.of(bias)))
        return out


@contextmanager
def make_traceable(model: nn.Module, trace: graph.Trace) -> Iterator[None]:
    """Replace methods of `model`, which has meta tensors, by variants that can be traced.

    Models in other threads are not affected, since `viterbi` is replaced for meta tensors only.
    """

    def viterbi(emissions: Tensor, *scores: Any) -> tuple[Tensor, Tensor]:
        return best_path(trace, emissions, *scores) if emissions.is_meta else chain.viterbi(emissions, *scores)

    with ExitStack() as patches:
        patches.enter_context(unchecked())
        for module in (crf, tag_heads):
            patches.enter_context(patch.object(module, "viterbi", viterbi))
        for layer in model.modules():
            for kind, name, value in OVERRIDES:
                if isinstance(layer, kind):
                    patches.enter_context(
                        patch.object(layer, name, partial(value, layer) if callable(value) else value)
                    )
        yield


def _score_pairs(attention: AdditiveAttention, queries: Tensor, keys: Tensor, added: Tensor | None = None) -> Tensor:
    """Return the scores of all positions at once. The original method loops over a dynamic number of blocks."""
    sums = queries.unsqueeze(2) + keys.unsqueeze(1)
    return attention.vector(torch.tanh(sums if added is None else sums + added)).squeeze(3)


def _max_over_equal(tagger: Tagger, h: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """Return the maxima over equal words. All pairs of words are compared, since `torch.unique` depends on values."""
    is_equal = keys.unsqueeze(2) == keys.unsqueeze(1)
    if mask is not None:
        is_equal = is_equal & (mask.unsqueeze(2) == mask.unsqueeze(1))
    return torch.where(is_equal.unsqueeze(3), h.unsqueeze(1), -torch.inf).amax(2)


OVERRIDES: tuple[tuple[type[nn.Module], str, Any], ...] = (
    (AdditiveAttention, "scores", _score_pairs),
    (Tagger, "maxima", _max_over_equal),
    (Classifier, "segment", 0),  # texts are not divided into segments, whose number would be a dynamic size
    (HighwayCharacterCNN, "pad", lambda _, ids: ids),  # keeps all padding, whose length depends on values
    (LearnedPositions, "check_end", lambda *_: None),
    (CopyingHead, "check_ids", lambda *_: None),
    (CopyingHead, "check", lambda *_: None),
)
"""Tuples of class, attribute, and replacement. A function as a replacement gets the module as its first argument."""


def best_path(
    trace: graph.Trace, emissions: Tensor, start: Tensor, transitions: Tensor, end: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the tags (B, T) and scores (B,) of `ensue.nn.viterbi`, with the same sums in the same order."""
    batch, length, tags = emissions.shape
    is_real = real_positions(emissions, mask)
    positions = torch.arange(length, device=emissions.device).unsqueeze(0).expand(batch, length)

    def forward_step(inputs: tuple[Tensor, ...], state: State) -> tuple[tuple[Tensor, ...], State]:
        emissions_t, is_real_t, position = inputs
        best = (state.unsqueeze(2) + transitions).amax(1)
        best = torch.where((position == 0).unsqueeze(1), start, best) + emissions_t
        best = torch.where(is_real_t.unsqueeze(1), best, state)
        return (best,), best

    initial = emissions.new_zeros(batch, tags)
    (sums,), last_sums = scan(trace, forward_step, (mask_padding(emissions, mask), is_real, positions), initial)
    scores, last_tag = (last_sums + end).max(1)
    last_position = last_positions(is_real)

    def backward_step(inputs: tuple[Tensor, ...], state: State) -> tuple[tuple[Tensor, ...], State]:
        best, position = inputs
        tag = (best + transitions.t()[state]).argmax(1)
        tag = torch.where(position < last_position, tag, last_tag)
        return (tag,), tag

    (path,), _ = scan(trace, backward_step, (sums, positions), last_tag, reverse=True)
    return path.masked_fill(~is_real, 0), scores.masked_fill(~is_real[:, 0], 0.0)


Function = Callable[..., Mapping[str, Tensor]]
"""A function (model, **inputs) that returns the outputs by name."""


@torch.no_grad()
def trace_function(
    model: nn.Module, function: Function, inputs: Mapping[str, TensorSpec], *, name: str
) -> onnx.ModelProto:
    """Return a function of a model as ONNX. Raises Unexportable."""
    meta_model, weights = to_meta(model)
    fixed = {size for _, tensor in weights.values() for size in tensor.shape}
    names = dict.fromkeys(size for form in inputs.values() for size in form.sizes if isinstance(size, str))
    sizes = graph.Sizes([*names, graph.BEAMS] if graph.TEXTS in names else names, fixed)
    trace = graph.Trace(sizes, weights)
    arguments = {}
    for key, form in inputs.items():
        shape = [sizes.primes[size] if isinstance(size, str) else size for size in form.sizes]
        arguments[key] = trace.placeholder(shape, form.dtype, key)
        for dim, size in enumerate(form.sizes):
            if isinstance(size, str):
                sizes.bind(sizes.primes[size], trace.add("Shape", key, start=dim, end=dim + 1))
    if graph.TEXTS in names:
        rows, texts = (sizes.value(trace.root, sizes.primes[name]) for name in (graph.ROWS, graph.TEXTS))
        sizes.bind(sizes.primes[graph.BEAMS], trace.add("Div", rows, texts))
    with (
        _OperationMode(trace),
        _ProductMode(trace),
        convert_loops(meta_model, trace),
        make_traceable(meta_model, trace),
    ):
        outputs_by_name = function(meta_model, **arguments)
    outputs = []
    new_names: dict[str, str] = {}
    node_outputs = {name for node in trace.root.nodes for name in node.output}
    for key, tensor in outputs_by_name.items():
        if (value := trace.of(tensor)) in node_outputs - new_names.keys():
            new_names[value] = key  # cheaper than a node that copies the value
        else:
            trace.root.nodes.append(onnx.helper.make_node("Identity", [value], [key]))
        outputs.append(graph.value_info(key, tensor.dtype, [_output_size(sizes, size) for size in tensor.shape]))
    graph.rename(trace.root.nodes, new_names)
    input_types = [graph.value_info(key, form.dtype, form.sizes) for key, form in inputs.items()]
    return graph.build_model(trace.root.build(name, input_types, outputs))


def to_meta(model: nn.Module) -> tuple[Any, dict[int, tuple[str, Tensor]]]:
    """Return a copy of a model with meta tensors, and (name, values) of each weight by the id of its meta tensor."""
    memo: dict[int, Any] = {}
    weights: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        meta: Tensor = torch.empty_like(tensor, device="meta")
        if isinstance(tensor, nn.Parameter):
            meta = nn.Parameter(meta, requires_grad=False)
        memo[id(tensor)] = meta
        weights[id(meta)] = (name, tensor)
    return deepcopy(model, memo).eval(), weights


def _output_size(sizes: graph.Sizes, number: int) -> int | str | None:
    """Return a fixed size, the name of a dynamic size, or None for a size that is computed from dynamic sizes."""
    if sizes.is_fixed(number):
        return number
    return next((name for name, prime in sizes.primes.items() if prime == number), None)
