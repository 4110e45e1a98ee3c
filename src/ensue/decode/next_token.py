"""From logits to the next token: temperature, filters, and the draw.

The order is fixed: repetition penalty, temperature, top-k, top-p, min-p, draw. Each filter reads the renormalized
distribution after the filters before it. The most probable token always remains, so there is always one to draw.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ensue.decode.sampling import Sampling
from ensue.errors import EnsueError
from ensue.types import widest


def next_ids(
    logits: Float[Tensor, "B V"],
    sampling: Sampling,
    generator: torch.Generator,
    *,
    seen: Bool[Tensor, "B V"] | None = None,
) -> Int[Tensor, " B"]:
    """One token for each row. `seen` marks the tokens that get the repetition penalty.

    Raises EnsueError for logits that are not finite.
    """
    if not logits.amax(-1).isfinite().all():
        raise EnsueError("the model's scores of the next token are not finite: its training has diverged")
    if seen is not None and sampling.repetition_penalty != 1:
        logits = penalized(logits, seen, sampling.repetition_penalty)
    if sampling.is_greedy:
        return logits.argmax(-1)
    return draw(filtered(logits, sampling), generator)


def penalized(logits: Float[Tensor, "B V"], seen: Bool[Tensor, "B V"], penalty: float) -> Float[Tensor, "B V"]:
    """`logits` in which those of the `seen` tokens are lowered (raised, if `penalty` is below 1)."""
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def filtered(logits: Float[Tensor, "B V"], sampling: Sampling) -> Float[Tensor, "B V"]:
    """The logits of the distribution to draw from; -∞ for tokens that are cut. The temperature must not be 0."""
    if sampling.temperature != 1:
        # the largest becomes 0 first, so that a small temperature cannot overflow
        logits = (logits - logits.amax(-1, keepdim=True)) / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < logits.shape[-1]:
        logits = _keep_top_k(logits, sampling.top_k)
    if sampling.top_p is not None and sampling.top_p < 1:
        logits = keep_top_p(logits, sampling.top_p)
    if sampling.min_p:
        threshold = logits.amax(-1, keepdim=True) + math.log(sampling.min_p)
        logits = logits.masked_fill(logits < threshold, -math.inf)
    return logits


def _keep_top_k(logits: Tensor, k: int) -> Tensor:
    values, ids = logits.topk(k)
    return torch.full_like(logits, -math.inf).scatter_(-1, ids, values)


def keep_top_p(logits: Float[Tensor, "B V"], p: float | Float[Tensor, "B 1"]) -> Float[Tensor, "B V"]:
    """-∞ for all but the fewest most probable tokens whose probabilities reach `p`, one number or one for each row."""
    values, ids = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = values.softmax(-1, dtype=widest(values.device))
    before = probabilities.cumsum(-1) - probabilities
    is_cut = before >= p
    is_cut[..., 0] = False  # neither rounding nor a p that rounds to 0 may cut the first
    return torch.empty_like(logits).scatter_(-1, ids, values.masked_fill(is_cut, -math.inf))


def draw(logits: Float[Tensor, "B V"], generator: torch.Generator) -> Int[Tensor, " B"]:
    """One id for each row, with the probabilities `softmax(logits)`.

    By inversion: the first id at which the cumulative probability reaches u times the total, with u from (0, 1]. It
    takes one random number for each row. u is never 0, so no id of probability 0 is drawn.
    """
    u = 1 - torch.rand(len(logits), 1, generator=generator, dtype=widest(logits.device), device=logits.device)
    return drawn(logits, u)


def drawn(logits: Float[Tensor, "B V"], u: Float[Tensor, "B 1"]) -> Int[Tensor, " B"]:
    """The draws of `draw` with the random numbers `u`, in (0, 1]."""
    sums = logits.softmax(-1).cumsum(-1, dtype=u.dtype)
    return torch.searchsorted(sums, u * sums[:, -1:]).squeeze(1)
