"""A function of a model as a whole graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from ensue.exchange.onnx.graph import described, model_of, rename
from ensue.exchange.onnx.loops import loops_kept
from ensue.exchange.onnx.overrides import overridden
from ensue.exchange.onnx.sizes import BEAMS, ROWS, TEXTS, Sizes
from ensue.exchange.onnx.tracing import Trace, operations_of
from ensue.tasks.contract.portable import TensorForm

Function = Callable[..., Mapping[str, Tensor]]
"""(model, **inputs) to the outputs by name."""


def traced(model: nn.Module, function: Function, inputs: Mapping[str, TensorForm], *, name: str) -> onnx.ModelProto:
    """The graph of a function of a model. Raises Unexportable."""
    empty, weights = without_content(model)
    fixed = {size for _, numbers in weights.values() for size in numbers.shape}
    words = dict.fromkeys(size for given in inputs.values() for size in given.sizes if isinstance(size, str))
    sizes = Sizes([*words, BEAMS] if TEXTS in words else words, fixed)
    trace = Trace(sizes, weights)
    given = {}
    for key, expected in inputs.items():
        numbers = [sizes.primes[size] if isinstance(size, str) else size for size in expected.sizes]
        given[key] = trace.stand_in(numbers, expected.dtype, key)
        for place, size in enumerate(expected.sizes):
            if isinstance(size, str):
                sizes.let(sizes.primes[size], trace.add("Shape", key, start=place, end=place + 1))
    if TEXTS in words:
        rows, texts = (sizes.value(trace.root, sizes.primes[name]) for name in (ROWS, TEXTS))
        sizes.let(sizes.primes[BEAMS], trace.add("Div", rows, texts))
    with operations_of(trace), loops_kept(empty, trace), overridden(empty, trace):
        found = function(empty, **given)
    outputs = []
    names: dict[str, str] = {}
    made = {name for node in trace.root.nodes for name in node.output}
    for key, tensor in found.items():
        if (value := trace.of(tensor)) in made - names.keys():
            names[value] = key  # no copy
        else:
            trace.root.nodes.append(onnx.helper.make_node("Identity", [value], [key]))
        outputs.append(described(key, tensor.dtype, [_size_name(sizes, size) for size in tensor.shape]))
    rename(trace.root.nodes, names)
    heads = [described(key, expected.dtype, expected.sizes) for key, expected in inputs.items()]
    return model_of(trace.root.finished(name, heads, outputs))


def without_content(model: nn.Module) -> tuple[Any, dict[int, tuple[str, Tensor]]]:
    """A copy of a model with empty weights; and each weight's name and numbers by the id of its placeholder."""
    memo: dict[int, Any] = {}
    weights: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        empty: Tensor = torch.empty_like(tensor, device="meta")
        if isinstance(tensor, nn.Parameter):
            empty = nn.Parameter(empty, requires_grad=False)
        memo[id(tensor)] = empty
        weights[id(empty)] = (name, tensor)
    return deepcopy(model, memo).eval(), weights


def _size_name(sizes: Sizes, number: int) -> int | str | None:
    """The word for a size of an output."""
    if sizes.is_fixed(number):
        return number
    return next((name for name, prime in sizes.primes.items() if prime == number), None)
