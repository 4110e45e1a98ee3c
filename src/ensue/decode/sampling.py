"""From logits to the next token: temperature, filters, and the draw.

The order is fixed: repetition penalty, temperature, top-k, top-p, min-p, draw. Each filter reads the renormalized
distribution after the filters before it. The most probable token always remains, so there is always one to draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TypedDict

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ensue.arguments import check_type
from ensue.errors import EnsueError
from ensue.parsing import shown
from ensue.types import widest

MOST = 1e30
"""The largest temperature and penalty; float32 holds it."""
GREEDY_BELOW = 1e-6
"""A temperature below this counts as 0, since dividing by it would exceed float32."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. Raises EnsueError for a value out of range.

    - `temperature` divides the logits; 0 takes the most probable token (greedy).
    - `top_k` keeps the k most probable tokens (Fan et al. 2018).
    - `top_p` keeps the fewest most probable tokens whose probabilities reach p (Holtzman et al. 2020).
    - `min_p` keeps the tokens with at least p times the probability of the most probable one (Nguyen et al. 2024).
    - `repetition_penalty` θ makes tokens of the prompt and the output so far less probable: a positive logit is divided
      by θ, a negative one is multiplied. (Keskar et al. 2019 divide both, which favors tokens with negative logits.)
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if self.top_k is not None:
            check_type("top_k", self.top_k, Integral, "a whole number")
        for name in ("temperature", "top_p", "min_p", "repetition_penalty"):
            value = getattr(self, name)
            if value is not None or name in ("temperature", "repetition_penalty"):
                check_type(name, value, Real, "a number")
        _require(0 <= self.temperature <= MOST, "temperature", self.temperature, "0 (greedy) or more")
        _require(self.top_k is None or self.top_k >= 1, "top_k", self.top_k, "1 or more")
        _require(self.top_p is None or 0 < self.top_p <= 1, "top_p", self.top_p, "more than 0 and at most 1")
        _require(self.min_p is None or 0 <= self.min_p <= 1, "min_p", self.min_p, "a number from 0 to 1")
        penalty = self.repetition_penalty
        _require(0 < penalty <= MOST, "repetition_penalty", penalty, "more than 0 (1 changes nothing)")

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature < GREEDY_BELOW


class SamplingOptions(TypedDict, total=False):
    """The arguments of `Sampling`, for signatures."""

    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float


def _require(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise EnsueError(f"{name} is {shown(value)}; expected {expected}")


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
    before[..., 0] = 0.0  # rounding must not cut the first
    return torch.empty_like(logits).scatter_(-1, ids, values.masked_fill(before >= p, -math.inf))


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
