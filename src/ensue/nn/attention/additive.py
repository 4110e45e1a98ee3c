"""Additive scores, block by block, so that no tensor of all queries by all keys by all features is ever held.

Such a tensor would be written and read many times. A block stays in cache, and the backward pass works it out again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK_ELEMENTS = 1 << 17
"""The number of elements of a block."""


def additive_scores(
    queries: Float[Tensor, "M T d"], keys: Float[Tensor, "M S d"], vector: Float[Tensor, " d"]
) -> Float[Tensor, "M T S"]:
    """`vector · tanh(query + key)` for each query at each key; in float32 at least."""
    dtype = torch.promote_types(torch.promote_types(queries.dtype, keys.dtype), torch.float32)
    given = queries.to(dtype), keys.to(dtype), vector.to(dtype)
    scores: Tensor = _AdditiveScores.apply(*given)  # type: ignore[no-untyped-call]
    return scores


def scores_of(queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
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
        with torch.autocast(queries.device.type, enabled=False):
            return scores_of(queries, keys, vector)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, at_scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, vector = ctx.saved_tensors
        at_keys, at_vector = torch.zeros_like(keys), torch.zeros_like(vector)
        with torch.autocast(queries.device.type, enabled=False):
            at_queries = add_errors(queries, keys, vector, at_scores, at_keys=at_keys, at_vector=at_vector)
        return at_queries, at_keys, at_vector
