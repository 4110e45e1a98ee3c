"""A function of a model as a whole graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from ensue.extensions.exporting.onnx.graph import described, model_of, rename
from ensue.extensions.exporting.onnx.loops import loops_kept, replaced, scan
from ensue.extensions.exporting.onnx.sizes import BEAMS, ROWS, TEXTS, Sizes
from ensue.extensions.exporting.onnx.tracing import Trace, operations_of
from ensue.models import tag_heads
from ensue.models.classifier import Classifier
from ensue.models.tagger import Tagger
from ensue.nn import AdditiveAttention, CopyingHead, HighwayCharacterCNN, LearnedPositions
from ensue.nn.border import unchecked
from ensue.nn.heads import crf, paths
from ensue.nn.heads.chain import last_positions, real_positions
from ensue.nn.layer import blank
from ensue.tasks.contract.description import TensorForm
from ensue.types import State


@contextmanager
def overridden(model: nn.Module, trace: Trace) -> Iterator[None]:
    """Inside, `model`, whose tensors have no content, is traced in the form of a graph. Other threads go on as ever."""

    def viterbi(emissions: Tensor, *scores: Any) -> tuple[Tensor, Tensor]:
        return best_path(trace, emissions, *scores) if emissions.is_meta else paths.viterbi(emissions, *scores)

    with ExitStack() as changed:
        changed.enter_context(unchecked())
        for module in (crf, tag_heads):
            changed.enter_context(replaced(module, "viterbi", viterbi))
        for part in model.modules():
            for kind, name, value in OVERRIDES:
                if isinstance(part, kind):
                    changed.enter_context(replaced(part, name, partial(value, part) if callable(value) else value))
        yield


def _scores(attention: AdditiveAttention, queries: Tensor, keys: Tensor, added: Tensor | None = None) -> Tensor:
    """All at once, since blocks depend on the sizes."""
    sums = queries.unsqueeze(2) + keys.unsqueeze(1)
    scores: Tensor = attention.vector(torch.tanh(sums if added is None else sums + added)).squeeze(3)
    return scores


def _maxima(tagger: Tagger, h: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """Each pair of words is compared, since the number of different words is no size."""
    same = keys.unsqueeze(2) == keys.unsqueeze(1)
    if mask is not None:
        same = same & (mask.unsqueeze(2) == mask.unsqueeze(1))
    return torch.where(same.unsqueeze(3), h.unsqueeze(1), -torch.inf).amax(2)


OVERRIDES: tuple[tuple[type[nn.Module], str, Any], ...] = (
    (AdditiveAttention, "scores", _scores),
    (Tagger, "maxima", _maxima),
    (Classifier, "segment", 0),  # whole, since the number of pieces is a size
    (HighwayCharacterCNN, "padded", lambda _, ids: ids),  # how many characters there are is no value
    (LearnedPositions, "check_end", lambda *_: None),
    (CopyingHead, "check_ids", lambda *_: None),
    (CopyingHead, "check", lambda *_: None),
)
"""The name of an attribute of a module, and its value in a graph; a function is given the module first."""


def best_path(
    trace: Trace, emissions: Tensor, start: Tensor, transitions: Tensor, end: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`ensue.nn.viterbi` with the same sums in the same order: the tags (B, T), and the scores (B,)."""
    batch, length, tags = emissions.shape
    real = real_positions(emissions, mask)
    places = torch.arange(length, device=emissions.device).unsqueeze(0).expand(batch, length)

    def rightward(given: tuple[Tensor, ...], state: State) -> tuple[tuple[Tensor, ...], State]:
        here, real_t, place = given
        reached = (state.unsqueeze(2) + transitions).amax(1)
        best = torch.where((place == 0).unsqueeze(1), start, reached) + here
        best = torch.where(real_t.unsqueeze(1), best, state)
        return (best,), best

    nothing = emissions.new_zeros(batch, tags)
    (sums,), ending = scan(trace, rightward, (blank(emissions, mask), real, places), nothing)
    scores, final = (ending + end).max(1)
    last = last_positions(real)

    def leftward(given: tuple[Tensor, ...], state: State) -> tuple[tuple[Tensor, ...], State]:
        best, place = given
        tag = (best + transitions.t()[state]).argmax(1)
        tag = torch.where(place < last, tag, final)
        return (tag,), tag

    (path,), _ = scan(trace, leftward, (sums, places), final, reverse=True)
    return path.masked_fill(~real, 0), scores.masked_fill(~real[:, 0], 0.0)


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
