"""Sums over all paths of a chain of tags: log Z, its derivatives, marginals.

These are functions of scores; `crf.py` has the module, and `paths.py` finds the best paths. The score of a path y in a
row with emissions e (T, K) is

    start[y_1] + Σ_t e_t[y_t] + Σ_t transitions[y_{t-1}, y_t] + end[y_T]

A score of -inf makes a path illegal. `mask` (B, T) is True on real positions, which come first; values at padding
change nothing. A row without real positions has one path, the empty one, with the score 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ensue.engine.storage import gradients_of, is_transformed, needs_history
from ensue.nn.border import expect, expect_mask
from ensue.nn.heads.single_chain import NEVER, RESCALE_EVERY
from ensue.nn.layer import blank
from ensue.types import widest


def score(
    emissions: Float[Tensor, "B T K"],
    tags: Int[Tensor, "B T"],
    start: Float[Tensor, " K"],
    transitions: Float[Tensor, "K K"],
    end: Float[Tensor, " K"],
    mask: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, " B"]:
    """The scores of the paths `tags`. The tags at padding may be any numbers."""
    expect_scores("score", emissions, start, transitions, end, mask)
    expect("score", "tags", tags, emissions.shape[:2], torch.int64, like=emissions)
    if emissions.shape[1] == 0:
        return emissions.sum((1, 2))
    mask, dtype = real_positions(emissions, mask), torch.promote_types(emissions.dtype, start.dtype)
    tags = tags.masked_fill(~mask, 0)
    seen = emissions.gather(2, tags.unsqueeze(2)).squeeze(2).masked_fill(~mask, 0.0).sum(1, dtype=dtype)
    pairs = transitions[tags[:, :-1], tags[:, 1:]].masked_fill(~mask[:, 1:], 0.0).sum(1)
    last = tags.gather(1, last_positions(mask).unsqueeze(1)).squeeze(1)
    return seen + pairs + (start[tags[:, 0]] + end[last]).masked_fill(~mask[:, 0], 0.0)


def log_partition(
    emissions: Float[Tensor, "B T K"],
    start: Float[Tensor, " K"],
    transitions: Float[Tensor, "K K"],
    end: Float[Tensor, " K"],
    mask: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, " B"]:
    """`log Σ_y exp score(y)` in nats; -inf if every path is illegal."""
    expect_scores("log_partition", emissions, start, transitions, end, mask)
    dtype = torch.promote_types(emissions.dtype, start.dtype)
    scores, mask = _Scores(blank(emissions, mask), start, transitions, end), real_positions(emissions, mask)
    with torch.autocast(emissions.device.type, enabled=False):
        with torch.no_grad():
            sums = None if is_transformed() else _sums(scores, mask)
        if sums is None:
            return _log_partition_in_logs(scores, mask).to(dtype)
        total: Tensor = _LogPartition.apply(*scores, sums)  # type: ignore[no-untyped-call]
        return total.to(dtype)


def marginals(
    emissions: Float[Tensor, "B T K"],
    start: Float[Tensor, " K"],
    transitions: Float[Tensor, "K K"],
    end: Float[Tensor, " K"],
    mask: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B T K"]:
    """The probability of each tag at each position, over all paths; zeros at padding. Not differentiable."""
    expect_scores("marginals", emissions, start, transitions, end, mask)
    scores, mask = _Scores(blank(emissions, mask), start, transitions, end), real_positions(emissions, mask)
    with torch.autocast(emissions.device.type, enabled=False):
        with torch.no_grad():
            sums = _sums(scores, mask)
        if sums is not None:
            return sums.marginals().to(emissions.dtype)
        # The derivatives of log Z, even if the caller has disabled gradients.
        with torch.inference_mode(False), torch.enable_grad():
            copies, mask = _Scores(*(part.detach().clone() for part in scores)), mask.clone()
            total = _log_partition_in_logs(copies._replace(emissions=copies.emissions.requires_grad_()), mask)
            return torch.autograd.grad(total.sum(), copies.emissions)[0]


def posterior(
    emissions: Float[Tensor, "B T K"],
    start: Float[Tensor, " K"],
    transitions: Float[Tensor, "K K"],
    end: Float[Tensor, " K"],
    mask: Bool[Tensor, "B T"] | None = None,
) -> tuple[Float[Tensor, "B T K"], Float[Tensor, "B T K"]] | None:
    """The marginals, and the logarithms of sums over all paths that begin with a tag, up to a number for each position:
    what a `Posterior` has. None if a number may be too small to be exact. Not differentiable.
    """
    expect_scores("posterior", emissions, start, transitions, end, mask)
    scores, mask = _Scores(blank(emissions, mask), start, transitions, end), real_positions(emissions, mask)
    with torch.autocast(emissions.device.type, enabled=False), torch.no_grad():
        if (sums := _sums(scores, mask)) is None:
            return None
        suffixes = sums.suffixes(torch.ones_like(sums.log_partition))
        return (suffixes * sums.arrivals).transpose(0, 1), suffixes.log_().transpose(0, 1)


class _Scores(NamedTuple):
    emissions: Float[Tensor, "B T K"]
    start: Float[Tensor, " K"]
    transitions: Float[Tensor, "K K"]
    end: Float[Tensor, " K"]


class _Sums(NamedTuple):
    """The results of both sweeps over a chain: exponentials, time first, with a factor for each row and position."""

    log_partition: Float[Tensor, " B"]
    arrivals: Float[Tensor, "T B K"]
    """Sums from the left over all paths that lead to a tag, without its own emission."""
    through: Float[Tensor, "T 2 B K"]
    """Sums from the left over all paths that end with a tag, with its emission; and the same over reversed rows."""
    pairs: Float[Tensor, "K K"]
    """exp of the transitions."""
    mask: Bool[Tensor, "B T"]

    def suffixes(self, weight: Float[Tensor, " B"]) -> Float[Tensor, "T B K"]:
        """Sums over all paths that begin with a tag, scaled to Σ_j arrival_j suffix_j = `weight`; 0 at padding."""
        suffixes, real = _in_reverse(self.through, 1, self.mask), self.mask.t()
        totals = torch.linalg.vecdot(self.arrivals, suffixes).masked_fill(~real, 1.0)
        return suffixes.div_(totals.unsqueeze(2)).mul_((weight * real).unsqueeze(2))

    def marginals(self) -> Float[Tensor, "B T K"]:
        return self.suffixes(torch.ones_like(self.log_partition)).mul_(self.arrivals).transpose(0, 1)


class _LogPartition(torch.autograd.Function):
    """log Z with its derivatives, the expected counts, which follow from the sweeps of the forward pass."""

    @staticmethod
    def forward(ctx: Any, emissions: Tensor, start: Tensor, transitions: Tensor, end: Tensor, sums: _Sums) -> Tensor:
        ctx.sums, ctx.dtypes = sums, [part.dtype for part in (emissions, start, transitions, end)]
        ctx.save_for_backward(emissions, start, transitions, end, sums.mask)
        return sums.log_partition.clone()  # an output that is held by its own node would never be freed

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if needs_history([upstream]):
            *given, mask = ctx.saved_tensors
            reference = lambda *scores: _log_partition_in_logs(_Scores(*scores), mask)  # noqa: E731
            return (*gradients_of(reference, given, [upstream]), None)
        sums: _Sums = ctx.sums
        suffixes = sums.suffixes(upstream)
        pairs = sums.pairs * (sums.through[:-1, 0].flatten(0, 1).t() @ suffixes[1:].flatten(0, 1))
        tags = suffixes.mul_(sums.arrivals)
        last = last_positions(sums.mask).view(1, -1, 1).expand(1, -1, tags.shape[2])
        found = [tags.transpose(0, 1), tags[0].sum(0), pairs, tags.gather(0, last)[0].sum(0)]
        return (*(gradient.to(dtype) for gradient, dtype in zip(found, ctx.dtypes, strict=True)), None)


def _sums(scores: _Scores, mask: Tensor) -> _Sums | None:
    """Both sweeps as products of exponentials; None if a number may be too small to be exact.

    The sweep from right to left is a sweep from left to right over the reversed rows, with transposed transitions. Both
    run in the same matrix products.
    """
    B, T, K = scores.emissions.shape
    if not (B and T and K):
        return None
    dtype = widest(scores.emissions.device)
    start, transitions, end = (part.to(dtype) for part in scores[1:])
    tops = scores.emissions.amax(2).t().to(dtype)
    through = torch.empty(T, 2, B, K, dtype=dtype, device=mask.device)
    through[:, 0] = scores.emissions.transpose(0, 1)
    through[:, 0].sub_(tops.unsqueeze(2)).exp_()
    through[:, 1] = _in_reverse(through, 0, mask)
    ends, top = torch.stack((start, end)), transitions.amax()
    ends_tops, pairs = ends.amax(1, keepdim=True), torch.exp(transitions - top)
    begin = torch.exp(ends - ends_tops)
    arrivals, scales = _sweep(through, begin, torch.stack((pairs, pairs.t())))
    if not bool(_least(through, ends, transitions) >= torch.finfo(dtype).tiny ** 0.5):
        return None
    last = last_positions(mask)
    ending = through[last, 0, torch.arange(B, device=last.device)] @ begin[1]
    logs = (scales.log() + (tops + top)).masked_fill(~mask.t(), 0.0).sum(0)
    total = (logs + ending.log() + (ends_tops.sum() - top)).masked_fill(~mask[:, 0], 0.0)
    return _Sums(total, arrivals, through, pairs, mask) if bool((total > -torch.inf).all()) else None


def _sweep(through: Tensor, begin: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Multiplies the sums so far into the emissions `through` (T, 2, B, K), in place.

    Returns the sums from the left before each emission (T, B, K), and the divisors of the sums after it (T, B).
    """
    T, _, B, K = through.shape
    # Each step writes both directions; the second one goes to the place of the first one's next sums.
    arrivals, scales = through.new_empty(T + 1, B, K), through.new_ones(T, 2, B, 1)
    arrivals[:2] = begin.unsqueeze(1)
    previous = None
    for t, through_t in enumerate(through.unbind()):
        both = arrivals[t : t + 2]
        if previous is not None:
            torch.bmm(previous, pairs, out=both)
        previous = through_t.mul_(both)
        if t % RESCALE_EVERY == RESCALE_EVERY - 1:
            scale = torch.amax(through_t, 2, keepdim=True, out=scales[t])
            through_t.div_(scale)
    return arrivals[:T], scales[:, 0, :, 0]


def _least(after: Tensor, ends: Tensor, transitions: Tensor) -> Tensor:
    """The smallest of the sums that have a legal path.

    A term that underflows is below the smallest normal number. It does not matter in a sum, or in a product of two
    sums, that is far above this number. So if the smallest sum is far above, all sums are exact. NaN stays NaN.
    """
    if bool(torch.minimum(ends.amin(), transitions.amin()) > -torch.inf):
        return after.amin()
    allowed = (transitions > -torch.inf).cpu().numpy()
    begin, finish = (ends > -torch.inf).cpu().numpy()
    both = (reachable(begin, allowed, len(after)), reachable(finish, allowed.T, len(after)))
    forbidden = torch.from_numpy(~np.stack(both, axis=1)).to(after.device)
    return after.masked_fill(forbidden.unsqueeze(2), 1.0).amin()


def reachable(
    begin: Bool[np.ndarray, " K"], allowed: Bool[np.ndarray, "K K"], length: int
) -> Bool[np.ndarray, "{length} K"]:
    """The tags at each position that a legal path from the left can reach."""
    reached = np.empty((length, len(begin)), dtype=bool)
    reached[:] = begin
    for t in range(1, length):
        reached[t:] = allowed[reached[t - 1]].any(axis=0)
        if np.array_equal(reached[t], reached[t - 1]):
            break
    return reached


def _log_partition_in_logs(scores: _Scores, mask: Tensor) -> Float[Tensor, " B"]:
    """`log_partition` with logsumexp at every step, for autograd: slow, and exact for all numbers."""
    dtype = widest(scores.emissions.device)
    emissions, start, transitions, end = (part.to(dtype).clamp(min=NEVER) for part in scores)
    if emissions.shape[1] == 0:
        return emissions.sum((1, 2))
    alpha = start + emissions[:, 0]
    for t in range(1, emissions.shape[1]):
        following = torch.logsumexp(alpha.unsqueeze(2) + transitions, 1) + emissions[:, t]
        alpha = torch.where(mask[:, t : t + 1], following, alpha)
    total = torch.logsumexp(alpha + end, 1)
    return total.masked_fill(total < NEVER / 2, -torch.inf).masked_fill(~mask[:, 0], 0.0)


def _in_reverse(both: Float[Tensor, "T 2 B K"], side: int, mask: Bool[Tensor, "B T"]) -> Float[Tensor, "T B K"]:
    """A copy of one side of `both`, with each row's real positions in reverse order."""
    T, _, B, K = both.shape
    positions = torch.arange(T, device=mask.device).unsqueeze(1)
    reversed_positions = torch.where(mask.t(), mask.sum(1) - 1 - positions, positions)
    rows = (2 * reversed_positions + side) * B + torch.arange(B, device=mask.device)
    return both.view(-1, K).index_select(0, rows.flatten()).view(T, B, K)


def expect_scores(
    where: str, emissions: Tensor, start: Tensor, transitions: Tensor, end: Tensor, mask: Tensor | None
) -> None:
    """Raises `ValueError` or `TypeError` unless these are the scores of one chain."""
    expect(where, "emissions", emissions, ("rows", "positions", "tags"))
    K = emissions.shape[2]
    for what, table, sizes in (("start", start, (K,)), ("transitions", transitions, (K, K)), ("end", end, (K,))):
        expect(where, what, table, sizes, like=emissions)
    expect_mask(where, mask, emissions)


def real_positions(emissions: Tensor, mask: Tensor | None) -> Tensor:
    """The mask (B, T); all True if there is none."""
    return torch.ones(emissions.shape[:2], dtype=torch.bool, device=emissions.device) if mask is None else mask


def last_positions(mask: Tensor) -> Tensor:
    """The last real position of each row (B,); 0 if there is none."""
    return (mask.sum(1) - 1).clamp(min=0)
