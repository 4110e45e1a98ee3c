"""Sums over all paths of a linear chain of tags (log Z, its derivatives, and marginals), and the k best paths.

`crf.py` has the module with the scores. The score of a path y in a row with emissions e (T, K) is

    start[y_1] + Σ_t e_t[y_t] + Σ_t transitions[y_{t-1}, y_t] + end[y_T]

A path with a score of -inf is illegal. `mask` (B, T) is True on real positions, which come first. Values at padding
have no effect. A row without real positions has one path, the empty path, with the score 0. The best paths are computed
without gradients: by `viterbi` in the precision of the scores, and by `k_best` in float64.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ensue.engine import c_functions
from ensue.engine.storage import gradients_of, is_transformed, needs_history
from ensue.nn.border import expect, expect_mask
from ensue.nn.heads.single_chain import NEVER, RESCALE_EVERY, ChainScores, rank_chained
from ensue.nn.layer import mask_padding
from ensue.types import Mask, widest_float

Emissions: TypeAlias = Float[Tensor, "B T K"]


def score(
    emissions: Emissions, tags: Int[Tensor, "B T"], start: Float[Tensor, " K"],
    transitions: Float[Tensor, "K K"], end: Float[Tensor, " K"], mask: Mask = None,
) -> Float[Tensor, " B"]:  # fmt: skip
    """Return the scores of the paths `tags`; the tags at padding have no effect."""
    expect_scores("score", emissions, start, transitions, end, mask)
    expect("score", "tags", tags, emissions.shape[:2], torch.int64, like=emissions)
    if emissions.shape[1] == 0:
        return emissions.sum((1, 2))
    mask, dtype = real_positions(emissions, mask), torch.promote_types(emissions.dtype, start.dtype)
    tags = tags.masked_fill(~mask, 0)
    emitted = emissions.gather(2, tags.unsqueeze(2)).squeeze(2).masked_fill(~mask, 0.0).sum(1, dtype=dtype)
    pairs = transitions[tags[:, :-1], tags[:, 1:]].masked_fill(~mask[:, 1:], 0.0).sum(1)
    last = tags.gather(1, last_positions(mask).unsqueeze(1)).squeeze(1)
    return emitted + pairs + (start[tags[:, 0]] + end[last]).masked_fill(~mask[:, 0], 0.0)


def log_partition(
    emissions: Emissions, start: Float[Tensor, " K"], transitions: Float[Tensor, "K K"],
    end: Float[Tensor, " K"], mask: Mask = None, *, in_float32: bool = False,
) -> Float[Tensor, " B"]:  # fmt: skip
    """Return `log Σ_y exp score(y)` in nats; -inf if every path is illegal. `in_float32` is faster and less exact."""
    expect_scores("log_partition", emissions, start, transitions, end, mask)
    dtype = torch.promote_types(emissions.dtype, start.dtype)
    scores, mask = _Scores(mask_padding(emissions, mask), start, transitions, end), real_positions(emissions, mask)
    with torch.autocast(emissions.device.type, enabled=False):
        with torch.no_grad():
            sums = _sums_in_c(scores, mask) if in_float32 else None
            sums = sums or (None if is_transformed() else _sums(scores, mask))
        if sums is None:
            return _log_partition_in_logs(scores, mask).to(dtype)
        total: Tensor = _LogPartition.apply(*scores, sums)  # type: ignore[no-untyped-call]
        return total.to(dtype)


def marginals(
    emissions: Emissions, start: Float[Tensor, " K"], transitions: Float[Tensor, "K K"],
    end: Float[Tensor, " K"], mask: Mask = None,
) -> Float[Tensor, "B T K"]:  # fmt: skip
    """Return the marginal probability of each tag at each position, 0 at padding. Not differentiable."""
    expect_scores("marginals", emissions, start, transitions, end, mask)
    if (results := posterior(emissions, start, transitions, end, mask)) is not None:
        return results[0].to(emissions.dtype)
    scores, mask = _Scores(mask_padding(emissions, mask), start, transitions, end), real_positions(emissions, mask)
    # Marginals are the derivatives of log Z, so gradients are needed even if the caller has disabled them.
    with torch.autocast(emissions.device.type, enabled=False), torch.inference_mode(False), torch.enable_grad():
        copies, mask = _Scores(*(score.detach().clone() for score in scores)), mask.clone()
        total = _log_partition_in_logs(copies._replace(emissions=copies.emissions.requires_grad_()), mask)
        return torch.autograd.grad(total.sum(), copies.emissions)[0]


def posterior(
    emissions: Emissions, start: Float[Tensor, " K"], transitions: Float[Tensor, "K K"],
    end: Float[Tensor, " K"], mask: Mask = None,
) -> tuple[Float[Tensor, "B T K"], Float[Tensor, "B T K"]] | None:  # fmt: skip
    """Return `marginals` and `suffixes` of each row's `Posterior`, without gradients; None if numbers may underflow."""
    expect_scores("posterior", emissions, start, transitions, end, mask)
    scores, mask = _Scores(mask_padding(emissions, mask), start, transitions, end), real_positions(emissions, mask)
    with torch.autocast(emissions.device.type, enabled=False), torch.no_grad():
        if (sums := _sums(scores, mask)) is None:
            return None
        suffixes = sums.suffixes(torch.ones_like(sums.log_partition))
        return (suffixes * sums.arrivals).transpose(0, 1), suffixes.log_().transpose(0, 1)


class _Scores(NamedTuple):
    emissions: Emissions
    start: Float[Tensor, " K"]
    transitions: Float[Tensor, "K K"]
    end: Float[Tensor, " K"]


class _Sums(NamedTuple):
    """The results of the forward-backward algorithm. Each row and position has its own scale of the sums."""

    log_partition: Float[Tensor, " B"]
    arrivals: Float[Tensor, "T B K"]
    """Sums over all paths up to a tag, without the tag's emission."""
    through: Float[Tensor, "T 2 B K"]
    """Sums over all paths up to a tag, with its emission; index 1 of dimension 1 is for reversed rows."""
    pairs: Float[Tensor, "K K"]
    """The exponentials of the transitions."""
    mask: Bool[Tensor, "B T"]

    def suffixes(self, weight: Float[Tensor, " B"]) -> Float[Tensor, "T B K"]:
        """Return sums over the paths after each tag, scaled so that Σ_j arrival_j suffix_j = `weight`; 0 at padding."""
        suffixes, real = _reverse_side(self.through, 1, self.mask), self.mask.t()
        totals = torch.linalg.vecdot(self.arrivals, suffixes).masked_fill(~real, 1.0)
        return suffixes.div_(totals.unsqueeze(2)).mul_((weight * real).unsqueeze(2))


class _LogPartition(torch.autograd.Function):
    """The autograd function of log Z. Its gradients are expected counts, computed from the sums of `_Sums`."""

    @staticmethod
    def forward(ctx: Any, emissions: Tensor, start: Tensor, transitions: Tensor, end: Tensor, sums: _Sums) -> Tensor:
        ctx.sums, ctx.dtypes = sums, [scores.dtype for scores in (emissions, start, transitions, end)]
        ctx.save_for_backward(emissions, start, transitions, end, sums.mask)
        return sums.log_partition.clone()  # a copy, since autograd never frees a node that stores its own output

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if needs_history([upstream]):
            *scores, mask = ctx.saved_tensors
            reference = lambda *scores: _log_partition_in_logs(_Scores(*scores), mask)  # noqa: E731
            return (*gradients_of(reference, scores, [upstream]), None)
        sums: _Sums = ctx.sums
        suffixes = sums.suffixes(upstream)
        pairs = sums.pairs * (sums.through[:-1, 0].flatten(0, 1).t() @ suffixes[1:].flatten(0, 1))
        tags = suffixes.mul_(sums.arrivals)
        last = last_positions(sums.mask).view(1, -1, 1).expand(1, -1, tags.shape[2])
        gradients = [tags.transpose(0, 1), tags[0].sum(0), pairs, tags.gather(0, last)[0].sum(0)]
        return (*(gradient.to(dtype) for gradient, dtype in zip(gradients, ctx.dtypes, strict=True)), None)


def _sums_in_c(scores: _Scores, mask: Tensor) -> _Sums | None:
    """Return the sums of a C function in float32; None without compiled C, or if a number may be out of range."""
    functions, (B, T, K) = c_functions(scores.emissions), scores.emissions.shape
    if functions is None or any(table.dtype != torch.float32 for table in scores):
        return None
    tops = [table.max() for table in scores[1:]]
    start, pairs, end = (torch.exp(table - top) for table, top in zip(scores[1:], tops, strict=True))
    tables = F.pad(torch.cat((start[None], end[None], pairs, pairs.t())), (0, -K % 16))
    workspace, totals = tables.new_empty((T + 4) * tables.shape[1]), tables.new_empty(B, dtype=torch.float64)
    arrivals, through, lengths = tables.new_zeros(T, B, K), tables.new_zeros(T, 2, B, K), mask.sum(1)
    tensors = lengths, scores.emissions.contiguous(), tables, workspace, totals, arrivals, through
    functions.chain_sums(B, T, K, *(tensor.data_ptr() for tensor in tensors))
    totals += torch.where(lengths > 0, tops[0] + tops[2] + (lengths - 1) * tops[1], 0.0)
    return _Sums(totals, arrivals, through, pairs, mask) if bool(totals.isfinite().all()) else None


def _sums(scores: _Scores, mask: Tensor) -> _Sums | None:
    """Run the forward-backward algorithm on products of exponentials. Returns None if a number may underflow."""
    B, T, K = scores.emissions.shape
    if not (B and T and K):
        return None
    dtype = widest_float(scores.emissions.device)
    start, transitions, end = (table.to(dtype) for table in scores[1:])
    tops = scores.emissions.amax(2).t().to(dtype)
    through = torch.empty(T, 2, B, K, dtype=dtype, device=mask.device)
    through[:, 0] = scores.emissions.transpose(0, 1)
    through[:, 0].sub_(tops.unsqueeze(2)).exp_()
    through[:, 1] = _reverse_side(through, 0, mask)
    ends, top = torch.stack((start, end)), transitions.amax()
    ends_tops, pairs = ends.amax(1, keepdim=True), torch.exp(transitions - top)
    begin = torch.exp(ends - ends_tops)
    arrivals, scales = _sweep(through, begin, torch.stack((pairs, pairs.t())))
    if not bool(_lowest_sum(through, ends, transitions) >= torch.finfo(dtype).tiny ** 0.5):
        return None
    last = last_positions(mask)
    ending = through[last, 0, torch.arange(B, device=last.device)] @ begin[1]
    logs = (scales.log() + (tops + top)).masked_fill(~mask.t(), 0.0).sum(0)
    total = (logs + ending.log() + (ends_tops.sum() - top)).masked_fill(~mask[:, 0], 0.0)
    return _Sums(total, arrivals, through, pairs, mask) if bool((total > -torch.inf).all()) else None


def _sweep(through: Tensor, begin: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply `through` (T, 2, B, K) by the sums before each position, in place. Return forward sums and divisors."""
    T, _, B, K = through.shape
    # Step t writes forward sums to arrivals[t], and backward sums to arrivals[t + 1], which step t + 1 overwrites.
    arrivals, scales = through.new_empty(T + 1, B, K), through.new_ones(T, 2, B, 1)
    arrivals[:2] = begin.unsqueeze(1)
    previous = None
    for t, through_t in enumerate(through.unbind()):
        directions = arrivals[t : t + 2]
        if previous is not None:
            torch.bmm(previous, pairs, out=directions)
        previous = through_t.mul_(directions)
        if t % RESCALE_EVERY == RESCALE_EVERY - 1:
            through_t.div_(torch.amax(through_t, 2, keepdim=True, out=scales[t]))
    return arrivals[:T], scales[:, 0, :, 0]


def _lowest_sum(through: Tensor, ends: Tensor, transitions: Tensor) -> Tensor:
    """Return the lowest sum over legal paths, or NaN for any NaN. Unless this sum is tiny, underflow is negligible."""
    if bool(torch.minimum(ends.amin(), transitions.amin()) > -torch.inf):
        return through.amin()
    allowed = (transitions > -torch.inf).cpu().numpy()
    begin, finish = (ends > -torch.inf).cpu().numpy()
    reachable_tags = (reachable(begin, allowed, len(through)), reachable(finish, allowed.T, len(through)))
    forbidden = torch.from_numpy(~np.stack(reachable_tags, axis=1)).to(through.device)
    return through.amin(2).masked_fill(forbidden, 1.0).amin()


def reachable(
    begin: Bool[np.ndarray, " K"], allowed: Bool[np.ndarray, "K K"], length: int
) -> Bool[np.ndarray, "{length} K"]:
    """Return the mask of the tags that a legal path can reach at each position."""
    reached = np.empty((length, len(begin)), dtype=bool)
    reached[:] = begin
    for t in range(1, length):
        reached[t:] = allowed[reached[t - 1]].any(axis=0)
        if np.array_equal(reached[t], reached[t - 1]):
            break
    return reached


def _log_partition_in_logs(scores: _Scores, mask: Tensor) -> Float[Tensor, " B"]:
    """Compute `log_partition` with logsumexp at every step, under autograd, which is slow, but does not underflow."""
    dtype = widest_float(scores.emissions.device)
    emissions, start, transitions, end = (tensor.to(dtype).clamp(min=NEVER) for tensor in scores)
    if emissions.shape[1] == 0:
        return emissions.sum((1, 2))
    alpha = start + emissions[:, 0]
    for t in range(1, emissions.shape[1]):
        following = torch.logsumexp(alpha.unsqueeze(2) + transitions, 1) + emissions[:, t]
        alpha = torch.where(mask[:, t : t + 1], following, alpha)
    total = torch.logsumexp(alpha + end, 1)
    return total.masked_fill(total < NEVER / 2, -torch.inf).masked_fill(~mask[:, 0], 0.0)


def _reverse_side(directions: Float[Tensor, "T 2 B K"], side: int, mask: Bool[Tensor, "B T"]) -> Float[Tensor, "T B K"]:
    """Return a copy of `directions[:, side]` with each row's real positions in reverse order."""
    T, _, B, K = directions.shape
    positions = torch.arange(T, device=mask.device).unsqueeze(1)
    reversed_positions = torch.where(mask.t(), mask.sum(1) - 1 - positions, positions)
    rows = (2 * reversed_positions + side) * B + torch.arange(B, device=mask.device)
    return directions.view(-1, K).index_select(0, rows.flatten()).view(T, B, K)


def expect_scores(
    where: str, emissions: Tensor, start: Tensor, transitions: Tensor, end: Tensor, mask: Tensor | None
) -> None:
    """Raise ValueError or TypeError unless the tensors are the scores of one chain."""
    expect(where, "emissions", emissions, ("rows", "positions", "tags"))
    K = emissions.shape[2]
    for what, table, sizes in (("start", start, (K,)), ("transitions", transitions, (K, K)), ("end", end, (K,))):
        expect(where, what, table, sizes, like=emissions)
    expect_mask(where, mask, emissions)


def real_positions(emissions: Tensor, mask: Tensor | None) -> Tensor:
    """Return `mask` (B, T), or an all-True mask for None."""
    return torch.ones(emissions.shape[:2], dtype=torch.bool, device=emissions.device) if mask is None else mask


def last_positions(mask: Tensor) -> Tensor:
    """Return the last real position of each row (B,); 0 for a row without real positions."""
    return (mask.sum(1) - 1).clamp(min=0)


@torch.no_grad()
def viterbi(
    emissions: Emissions, start: Float[Tensor, " K"], transitions: Float[Tensor, "K K"],
    end: Float[Tensor, " K"], mask: Mask = None,
) -> tuple[Int[Tensor, "B T"], Float[Tensor, " B"]]:  # fmt: skip
    """Return the path with the highest score (0 at padding), and its score, which is -inf if every path is illegal.

    The forward sweep stores maxima only. Predecessors are recomputed along the best path, from its end to its start.
    """
    expect_scores("viterbi", emissions, start, transitions, end, mask)
    B, T, K = emissions.shape
    dtype = torch.promote_types(emissions.dtype, start.dtype)
    if not (B and T):
        return torch.zeros(B, T, dtype=torch.int64, device=emissions.device), emissions.new_zeros(B, dtype=dtype)
    local = mask_padding(emissions, mask).to(dtype).permute(1, 2, 0).contiguous()  # (T, K, B)
    mask = real_positions(emissions, mask)
    table = transitions.to(dtype)
    best, sums, pairs = torch.empty_like(local), local.new_empty(K, K, B), table.unsqueeze(2)
    torch.add(start.unsqueeze(1), local[0], out=best[0])
    before, steps = best.unsqueeze(2).unbind(), best.unbind()
    for before_t, best_t, local_t in zip(before, steps[1:], local.unbind()[1:], strict=False):
        torch.add(before_t, pairs, out=sums)
        torch.amax(sums, 0, out=best_t).add_(local_t)
    last = last_positions(mask)
    scores, final = (best[last, :, torch.arange(B, device=last.device)] + end).max(1)
    tag, path, shortest = final, [final], int(last.min())
    for t in range(T - 1, 0, -1):
        tag = (steps[t - 1] + table.index_select(1, tag)).argmax(0)
        if t > shortest:  # some rows end before t
            tag = torch.where(last < t, final, tag)
        path.append(tag)
    return torch.stack(path[::-1], 1).masked_fill(~mask, 0), scores.masked_fill(~mask[:, 0], 0.0)


@torch.no_grad()
def k_best(
    emissions: Emissions, start: Float[Tensor, " K"], transitions: Float[Tensor, "K K"],
    end: Float[Tensor, " K"], *, k: int, mask: Mask = None,
) -> tuple[Int[Tensor, "B {k} T"], Float[Tensor, "B {k}"]]:  # fmt: skip
    """Return the k paths with the highest scores, the best first, and their scores.

    If a row has fewer paths, the missing paths have the tags 0 and the score -inf. Raises ValueError if k is below 1.
    """
    expect_scores("k_best", emissions, start, transitions, end, mask)
    if k < 1:
        raise ValueError(f"k_best expects k of 1 or more, found {k}")
    (B, T, _), mask = emissions.shape, real_positions(emissions, mask)
    rows, *tables = (table.to("cpu", torch.float64).numpy() for table in (emissions, start, transitions, end))
    paths, num_paths = torch.zeros(B, k, T, dtype=torch.int64), torch.ones(B, 1, dtype=torch.int64)
    for row, length in enumerate(mask.sum(1).tolist()):
        if length:
            ranked = torch.from_numpy(rank_chained(rows[row, :length], ChainScores(*tables), k))
            paths[row, : len(ranked), :length], num_paths[row] = ranked, len(ranked)
    paths, is_missing = paths.to(mask.device), (torch.arange(k) >= num_paths).to(mask.device)
    scores = torch.stack([score(emissions, tags, start, transitions, end, mask) for tags in paths.unbind(1)], 1)
    return paths, scores.masked_fill(is_missing, -torch.inf)
