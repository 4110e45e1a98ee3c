"""A linear layer and its softmax cross-entropy as one function that never holds all logits.

For a vocabulary of V tokens the logits of a batch (rows × V) are by far its largest tensor, and plain autograd writes
and reads it five times. Here a chunk of rows goes through at a time and stays in cache: logits, softmax, and at once
the gradients, which for a sum of nats are known in the forward pass:

    dlogits = softmax(logits) - onehot(target),   dh = dlogits V,   dV = dlogitsᵀ h,   db = Σ dlogits

The bias is the weight of one more feature that is always 1. Under autocast the three products run in its type; what is
summed over chunks is kept in the parameters' own type.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

CHUNK_ELEMENTS, CHUNK_ROWS = 1 << 22, 256
"""Logits held at a time, and the rows that they are at least; the fastest on CPUs (LOG.md)."""

ALIGNMENT = 16
"""Features are padded to a multiple of this many, which the products' kernels like."""


def linear_cross_entropy(
    h: Float[Tensor, "N d"], weight: Float[Tensor, "V d"], bias: Float[Tensor, " V"], targets: Int[Tensor, " N"]
) -> Float[Tensor, ""]:
    """`Σ_n -log softmax(weight h_n + bias)[target_n]` in nats, a scalar."""
    device = h.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    total: Tensor = _LinearCrossEntropy.apply(h, weight, bias, targets, dtype)  # type: ignore[no-untyped-call]
    return total


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
        with torch.autocast(h.device.type, enabled=False):
            total, ctx.gradients = _chunked(h, weight, bias, targets, dtype, with_gradients=any(ctx.needs_input_grad))
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        return (*(gradient * upstream[0].to(gradient.dtype) for gradient in ctx.gradients), None, None)


def _chunked(
    h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype, *, with_gradients: bool
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor] | None]:
    d = weight.shape[1]
    padding = -(d + 1) % ALIGNMENT
    rows = F.pad(F.pad(h.to(dtype), (0, 1), value=1.0), (0, padding))
    columns = F.pad(torch.cat((weight, bias.unsqueeze(1)), dim=1).to(dtype), (0, padding))
    total, drows, dcolumns = weight.new_zeros(()), torch.empty_like(rows), weight.new_zeros(columns.shape)
    size = max(CHUNK_ROWS, CHUNK_ELEMENTS // len(weight))
    for start in range(0, len(h), size):
        chunk, wanted = rows[start : start + size], targets[start : start + size].unsqueeze(1)
        p = torch.softmax(chunk @ columns.t(), dim=1)
        p_wanted = p.gather(1, wanted)
        total -= p_wanted.to(weight.dtype).clamp(min=torch.finfo(dtype).tiny).log().sum()
        if with_gradients:
            p.scatter_(1, wanted, p_wanted - 1)
            drows[start : start + size] = p @ columns
            dcolumns += p.t() @ chunk
    return total, (drows[:, :d].to(h.dtype), dcolumns[:, :d], dcolumns[:, d]) if with_gradients else None
