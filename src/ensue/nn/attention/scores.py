"""Attention: scores, weights and weighted sums.

Additive scores are computed in blocks, so that the tensor of all queries × keys × features is not stored (except for
second derivatives and inside torch's transforms). A block stays in the cache, and the backward pass recomputes it.
"""

import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from ensue.engine import c_functions
from ensue.engine.products import parallel_rows, worth_threads
from ensue.engine.storage import address, gradients_of, is_transformed, needs_history
from ensue.nn.draws import apply_dropout, is_sharded
from ensue.types import at_least_float32

BLOCK_ELEMENTS = 1 << 17
"""The number of scores × features in a block of additive scores."""
MAX_BFLOAT16_KEYS = 512
"""The number of keys up to which a CPU stores weights in bfloat16; attention to more keys is in float32."""


def fused_attention(
    queries: Float[Tensor, "B H T d"], keys: Float[Tensor, "B H S d"], values: Float[Tensor, "B H S d_value"],
    allowed: Bool[Tensor, "#B 1 #T S"] | None, *, dropout: float, is_causal: bool, scale: float | None = None,
    bias: Float[Tensor, "#B H T S"] | None = None, tap: Callable[[Tensor], Tensor] | None = None,
) -> Float[Tensor, "B H T d_value"]:  # fmt: skip
    """Return `softmax(scale · queries keysᵀ + bias) values`, with dropout of the weights, over `allowed` keys.

    A query without allowed keys gets zeros. `scale` defaults to 1/√d. With `is_causal`, `bias` and `allowed` must be
    None. torch's scaled-dot-product kernel is used unless the weights have to be stored: for a `tap`, for dropout on a
    CPU or of sharded rows, and inside torch's transforms other than torch.compile. In bfloat16 on a CPU, where the
    kernel's backward pass is slow (docs/log), weights of up to `MAX_BFLOAT16_KEYS` keys are stored, and attention to
    more keys is in float32.
    """
    scale = 1 / math.sqrt(queries.shape[3]) if scale is None else scale
    on_cpu, dtype = queries.device.type == "cpu", values.dtype
    is_short = on_cpu and keys.shape[2] <= MAX_BFLOAT16_KEYS and queries.dtype == keys.dtype == dtype == torch.bfloat16
    stores_weights = is_short or tap is not None or (dropout > 0 and (on_cpu or is_sharded()))
    # Fused kernels have no `jvp`.
    stores_weights |= is_transformed() and not (torch.compiler.is_compiling() or keys.is_meta)
    leaves_autocast = on_cpu or stores_weights
    if leaves_autocast and not is_short:
        queries, keys, values = (x.to(at_least_float32(x.dtype)) for x in (queries, keys, values))
    bias = None if bias is None else bias.to(queries.dtype)
    with torch.autocast(queries.device.type, enabled=False) if leaves_autocast and not keys.is_meta else nullcontext():
        if stores_weights:
            scores = queries @ keys.transpose(2, 3)
            if is_causal:
                allowed = scores.new_ones(1, 1, *scores.shape[2:], dtype=torch.bool).tril()
            if bias is not None:
                scores, scale = torch.add(bias, scores, alpha=scale), 1.0
            weights = attention_weights(scores, allowed, scale)
            heads = apply_dropout(weights if tap is None else tap(weights), dropout) @ values
        else:
            allowed = allowed if bias is None else bias if allowed is None else torch.where(allowed, bias, -math.inf)
            heads = F.scaled_dot_product_attention(queries, keys, values, allowed, dropout, is_causal, scale=scale)
    return heads.to(dtype)


def weights_over(scores: Float[Tensor, "M columns S"], real: Bool[Tensor, "M S"]) -> Float[Tensor, "M columns S"]:
    """Return the softmax over the `real` positions, in float32 or more; zeros for a row without real positions."""
    scores = scores.to(at_least_float32(scores.dtype))
    return attention_weights(scores.unsqueeze(1), real[:, None, None]).squeeze(1)


def attention_weights(
    scores: Float[Tensor, "B H T S"], allowed: Bool[Tensor, "#B 1 #T S"] | None, scale: float = 1.0
) -> Float[Tensor, "B H T S"]:
    """Return the softmax of `scale · scores` over the `allowed` keys (None: all); 0 for all other keys.

    A query without allowed keys gets zeros. Sums are in float32 or more, and weights in the type of the scores.
    """
    functions = c_functions(scores)
    if functions is not None:
        return _Weights.apply(functions, allowed, scale, scores)  # type: ignore[no-untyped-call]
    scores = scores if scale == 1 else scores * scale
    if allowed is None:
        return scores.softmax(-1)
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~allowed, 0.0)


class _Weights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, functions: ctypes.CDLL, allowed: Tensor | None, scale: float, scores: Tensor) -> Tensor:
        weights = _compute_weights_in_c(functions, scores.contiguous(), allowed, scale)
        ctx.save_for_backward(weights)
        ctx.scale = scale
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, _multiply_derivative(ctx.saved_tensors[0], grads[0], ctx.scale)


def _multiply_derivative(weights: Tensor, x: Tensor, scale: float) -> Tensor:
    """Multiply `x` (B, H, T, S) by the Jacobian of the softmax, a symmetric matrix for each query."""
    functions = None if torch.is_grad_enabled() or c_functions(x) is None else c_functions(weights)
    if functions is not None:
        return _multiply_derivative_in_c(functions, weights, x.contiguous(), scale)
    product = weights * x
    return scale * (product - weights * product.sum(-1, keepdim=True))


def _compute_weights_in_c(functions: ctypes.CDLL, scores: Tensor, allowed: Tensor | None, scale: float) -> Tensor:
    batch, heads, queries, keys = scores.shape
    mask_address, rows, columns = None, 1, 1
    if allowed is not None:
        allowed = allowed.contiguous()
        rows, columns = batch if len(allowed) > 1 else 1, queries if allowed.shape[2] > 1 else 1
        mask_address = address("allowed", allowed, torch.bool, (rows, 1, columns, keys))
    sizes = (ctypes.c_int64 * 5)(heads, queries, keys, keys * columns * (rows > 1), keys * (columns > 1))
    weights, workers = torch.empty_like(scores), worth_threads(scores)
    workspace = scores.new_empty(workers, keys + 15, dtype=torch.float32)  # `keys` is rounded up to a multiple of 16
    pointers = scores.data_ptr(), weights.data_ptr(), scores.dtype == torch.bfloat16

    def work(first: int, last: int, worker: int) -> None:
        functions.attention_weights(first, last, sizes, scale, mask_address, workspace[worker].data_ptr(), *pointers)

    parallel_rows(batch, work, max_workers=workers)
    return weights


def _multiply_derivative_in_c(functions: ctypes.CDLL, weights: Tensor, x: Tensor, scale: float) -> Tensor:
    product, keys = torch.empty_like(weights), weights.shape[3]
    pointers = address("gradients of weights", x, weights.dtype, weights.shape), product.data_ptr()
    arguments = keys, scale, weights.data_ptr(), *pointers, weights.dtype == torch.bfloat16
    rows, workers = weights.numel() // keys, worth_threads(weights)
    parallel_rows(rows, lambda i, end, _: functions.attention_gradients(i, end, *arguments), max_workers=workers)
    return product


def additive_scores(
    queries: Float[Tensor, "M T d"], keys: Float[Tensor, "M S d"], vector: Float[Tensor, " d"]
) -> Float[Tensor, "M T S"]:
    """Return `vector · tanh(query + key)` for each query and key, in float32 or more."""
    dtype = at_least_float32(torch.promote_types(queries.dtype, keys.dtype))
    arguments = queries.to(dtype), keys.to(dtype), vector.to(dtype)
    with torch.autocast(queries.device.type, enabled=False):
        scores: Tensor = (_compute_scores if is_transformed() else _AdditiveScores.apply)(*arguments)
    return scores


def _compute_scores(queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    return torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1)) @ vector


def add_gradients(
    queries: Tensor, keys: Tensor, vector: Tensor, grad_scores: Tensor, grad_keys: Tensor, grad_vector: Tensor
) -> Tensor:
    """Return the gradient of the queries; add the gradients of keys and vector to `grad_keys` and `grad_vector`."""
    grad_queries = torch.empty_like(queries)
    for texts, rows in _iterate_blocks(queries, keys):
        hidden, grad = _compute_hidden(queries[texts, rows], keys[texts]), grad_scores[texts, rows]
        grad_vector += hidden.flatten(0, 2).t() @ grad.flatten()
        grad_sums = torch.ops.aten.tanh_backward(grad.unsqueeze(3) * vector, hidden)
        grad_queries[texts, rows] = grad_sums.sum(2)
        grad_keys[texts] += grad_sums.sum(1)
    return grad_queries


def _compute_hidden(queries: Tensor, keys: Tensor) -> Tensor:
    return (queries.unsqueeze(2) + keys.unsqueeze(1)).tanh_()


def _iterate_blocks(queries: Tensor, keys: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield slices of texts and queries with about `BLOCK_ELEMENTS` scores × features."""
    texts, length, d = queries.shape
    query_elements = max(1, keys.shape[1] * d)
    block_texts = max(1, BLOCK_ELEMENTS // (query_elements * max(1, length)))
    block_queries = length if block_texts > 1 else max(1, BLOCK_ELEMENTS // query_elements)
    for text in range(0, texts, block_texts):
        for first in range(0, length, max(1, block_queries)):
            yield slice(text, text + block_texts), slice(first, first + block_queries)


class _AdditiveScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
        ctx.save_for_backward(queries, keys, vector)
        texts, length, _ = queries.shape
        scores = queries.new_empty(texts, length, keys.shape[1])
        for texts_slice, rows in _iterate_blocks(queries, keys):
            hidden = _compute_hidden(queries[texts_slice, rows], keys[texts_slice])
            torch.matmul(hidden, vector, out=scores[texts_slice, rows])
        return scores

    @staticmethod
    def backward(ctx: Any, grad_scores: Tensor) -> Any:  # type: ignore[override]
        queries, keys, vector = ctx.saved_tensors
        if needs_history([grad_scores]):
            return tuple(gradients_of(_compute_scores, ctx.saved_tensors, [grad_scores]))
        grad_keys, grad_vector = torch.zeros_like(keys), torch.zeros_like(vector)
        with torch.autocast(queries.device.type, enabled=False):
            grad_queries = add_gradients(queries, keys, vector, grad_scores, grad_keys, grad_vector)
        return grad_queries, grad_keys, grad_vector
