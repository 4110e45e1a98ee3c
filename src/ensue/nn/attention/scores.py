"""The scores of attention, the weights that they become, and the sums of values by them.

Additive scores are worked out block by block, so that no tensor of all queries by all keys by all features is ever
held. Such a tensor would be written and read many times. A block stays in cache, and the backward pass works it out
again.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from ensue.engine import passes
from ensue.engine.products import in_parts, worth_threads
from ensue.engine.storage import address, gradients_of, is_transformed, needs_history
from ensue.nn.draws import dropped, is_sharded
from ensue.types import at_least_float32

BLOCK_ELEMENTS = 1 << 17
"""The number of elements of a block of additive scores."""
FEW_KEYS = 512
"""Up to so many keys, a CPU has the weights in memory where products are in bfloat16."""


def fused_attention(
    queries: Float[Tensor, "B H T d"],
    keys: Float[Tensor, "B H S d"],
    values: Float[Tensor, "B H S d_value"],
    allowed: Bool[Tensor, "#B 1 #T S"] | None,
    *,
    dropout: float,
    is_causal: bool,
    scale: float | None = None,
    bias: Float[Tensor, "#B H T S"] | None = None,
    tap: Callable[[Tensor], Tensor] | None = None,
) -> Float[Tensor, "B H T d_value"]:
    """`softmax(scale · queries keysᵀ + bias) values`, with dropout of the weights, over the keys that are `allowed`.

    A query that may attend to nothing gets zeros. `scale` is 1/√d unless it is given. Causal attention has no bias.
    It runs on torch's scaled-dot-product kernel. With a `tap`, which sees the weights, they are in memory, and with
    dropout too, whose random numbers belong to the rows. On a CPU that kernel's backward pass is slow in bfloat16:
    there the weights of a few keys are in memory, and many keys are read in float32 (docs/log).
    """
    scale = 1 / math.sqrt(queries.shape[3]) if scale is None else scale
    on_cpu, given = queries.device.type == "cpu", values.dtype
    few = on_cpu and keys.shape[2] <= FEW_KEYS and queries.dtype == keys.dtype == given == torch.bfloat16
    in_memory = few or tap is not None or (dropout > 0 and (on_cpu or is_sharded()))
    in_memory |= is_transformed() and not (torch.compiler.is_compiling() or keys.is_meta)  # fused kernels have no `jvp`
    leaves_autocast = on_cpu or in_memory
    if leaves_autocast and not few:
        queries, keys, values = (part.to(at_least_float32(part.dtype)) for part in (queries, keys, values))
    bias = None if bias is None else bias.to(queries.dtype)
    with torch.autocast(queries.device.type, enabled=False) if leaves_autocast and not keys.is_meta else nullcontext():
        if in_memory:
            scores = queries @ keys.transpose(2, 3)
            if is_causal:
                allowed = scores.new_ones(1, 1, *scores.shape[2:], dtype=torch.bool).tril()
            if bias is not None:
                scores, scale = torch.add(bias, scores, alpha=scale), 1.0
            weights = attention_weights(scores, allowed, scale)
            heads = dropped(weights if tap is None else tap(weights), dropout) @ values
        else:
            allowed = allowed if bias is None else bias if allowed is None else torch.where(allowed, bias, -math.inf)
            heads = F.scaled_dot_product_attention(queries, keys, values, allowed, dropout, is_causal, scale=scale)
    return heads.to(given)


def weights_over(scores: Float[Tensor, "M columns S"], real: Bool[Tensor, "M S"]) -> Float[Tensor, "M columns S"]:
    """The softmax over the `real` positions, in float32 at least; all zero where there is none."""
    scores = scores.to(at_least_float32(scores.dtype))
    return attention_weights(scores.unsqueeze(1), real[:, None, None]).squeeze(1)


def attention_weights(
    scores: Float[Tensor, "B H T S"], allowed: Bool[Tensor, "#B 1 #T S"] | None, scale: float = 1.0
) -> Float[Tensor, "B H T S"]:
    """The softmax of `scale · scores` over the keys that are `allowed` (None: all); others have 0.

    A row without keys is all zero. Sums are in float32 at least, and weights in the type of the scores.
    """
    functions = passes(scores)
    if functions is not None:
        weights: Tensor = _Weights.apply(functions, allowed, scale, scores)  # type: ignore[no-untyped-call]
        return weights
    scores = scores if scale == 1 else scores * scale
    if allowed is None:
        return scores.softmax(-1)
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~allowed, 0.0)


class _Weights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, functions: ctypes.CDLL, allowed: Tensor | None, scale: float, scores: Tensor) -> Tensor:
        weights = _weights_in_c(functions, scores.contiguous(), allowed, scale)
        ctx.save_for_backward(weights)
        ctx.scale = scale
        return weights

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, _changed(ctx.saved_tensors[0], errors[0], ctx.scale)


def _changed(weights: Tensor, x: Tensor, scale: float) -> Tensor:
    """The derivatives of the weights by the scores, a symmetric matrix for each row, times `x` (B, H, T, S)."""
    functions = None if torch.is_grad_enabled() or passes(x) is None else passes(weights)
    if functions is not None:
        return _changed_in_c(functions, weights, x.contiguous(), scale)
    product = weights * x
    return scale * (product - weights * product.sum(-1, keepdim=True))


def _weights_in_c(functions: ctypes.CDLL, scores: Tensor, allowed: Tensor | None, scale: float) -> Tensor:
    batch, heads, queries, keys = scores.shape
    at, rows, columns = None, 1, 1
    if allowed is not None:
        allowed = allowed.contiguous()
        rows, columns = batch if len(allowed) > 1 else 1, queries if allowed.shape[2] > 1 else 1
        at = address("what is allowed", allowed, torch.bool, (rows, 1, columns, keys))
    sizes = (ctypes.c_int64 * 5)(heads, queries, keys, keys * columns * (rows > 1), keys * (columns > 1))
    weights, workers = torch.empty_like(scores), worth_threads(scores)
    room = torch.empty(workers, keys + 15)
    given = scores.data_ptr(), weights.data_ptr(), scores.dtype == torch.bfloat16
    weigh, of_rows = functions.attention_weights, (sizes, scale, at)
    in_parts(batch, lambda i, end, worker: weigh(i, end, *of_rows, room[worker].data_ptr(), *given), most=workers)
    return weights


def _changed_in_c(functions: ctypes.CDLL, weights: Tensor, x: Tensor, scale: float) -> Tensor:
    found, keys = torch.empty_like(weights), weights.shape[3]
    given = address("gradients of weights", x, weights.dtype, weights.shape), found.data_ptr()
    of_rows = keys, scale, weights.data_ptr(), *given, weights.dtype == torch.bfloat16
    rows, most = weights.numel() // keys, worth_threads(weights)
    in_parts(rows, lambda first, last, _: functions.attention_changes(first, last, *of_rows), most=most)
    return found


def additive_scores(
    queries: Float[Tensor, "M T d"], keys: Float[Tensor, "M S d"], vector: Float[Tensor, " d"]
) -> Float[Tensor, "M T S"]:
    """`vector · tanh(query + key)` for each query at each key; in float32 at least."""
    dtype = at_least_float32(torch.promote_types(queries.dtype, keys.dtype))
    given = queries.to(dtype), keys.to(dtype), vector.to(dtype)
    with torch.autocast(queries.device.type, enabled=False):
        scores: Tensor = (_plain_scores if is_transformed() else _AdditiveScores.apply)(*given)
    return scores


def _plain_scores(queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """All at once, under autograd."""
    return torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1)) @ vector


def _scores_in_blocks(queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """The scores, without a history."""
    texts, length, _ = queries.shape
    scores = queries.new_empty(texts, length, keys.shape[1])
    for texts_here, here in _blocks(queries, keys):
        torch.matmul(_hidden(queries[texts_here, here], keys[texts_here]), vector, out=scores[texts_here, here])
    return scores


def add_errors(
    queries: Tensor, keys: Tensor, vector: Tensor, at_scores: Tensor, *, at_keys: Tensor, at_vector: Tensor
) -> Tensor:
    """The error at the queries, from that at the scores; those at keys and vector are added to what is there."""
    at_queries = torch.empty_like(queries)
    for texts, here in _blocks(queries, keys):
        hidden, error = _hidden(queries[texts, here], keys[texts]), at_scores[texts, here]
        at_vector += hidden.flatten(0, 2).t() @ error.flatten()
        at_sums = torch.ops.aten.tanh_backward(error.unsqueeze(3) * vector, hidden)
        at_queries[texts, here] = at_sums.sum(2)
        at_keys[texts] += at_sums.sum(1)
    return at_queries


def _hidden(queries: Tensor, keys: Tensor) -> Tensor:
    return (queries.unsqueeze(2) + keys.unsqueeze(1)).tanh_()


def _blocks(queries: Tensor, keys: Tensor) -> Iterator[tuple[slice, slice]]:
    """Texts, and some of their queries."""
    texts, length, d = queries.shape
    of_query = max(1, keys.shape[1] * d)
    several = max(1, BLOCK_ELEMENTS // (of_query * max(1, length)))
    queries_at_once = length if several > 1 else max(1, BLOCK_ELEMENTS // of_query)
    for text in range(0, texts, several):
        for first in range(0, length, max(1, queries_at_once)):
            yield slice(text, text + several), slice(first, first + queries_at_once)


class _AdditiveScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
        ctx.save_for_backward(queries, keys, vector)
        return _scores_in_blocks(queries, keys, vector)

    @staticmethod
    def backward(ctx: Any, at_scores: Tensor) -> Any:  # type: ignore[override]
        queries, keys, vector = ctx.saved_tensors
        if needs_history([at_scores]):
            return tuple(gradients_of(_plain_scores, ctx.saved_tensors, [at_scores]))
        at_keys, at_vector = torch.zeros_like(keys), torch.zeros_like(vector)
        with torch.autocast(queries.device.type, enabled=False):
            at_queries = add_errors(queries, keys, vector, at_scores, at_keys=at_keys, at_vector=at_vector)
        return at_queries, at_keys, at_vector
