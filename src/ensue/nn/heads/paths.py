"""The best path through a chain of tags, and the k best.

These are functions of the same scores as in `chain.py`. They only add and compare, in the scores' own precision, and
have no gradients.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ensue.nn.heads.chain import expect_scores, last_positions, real_positions
from ensue.nn.layer import blank


@torch.no_grad()
def viterbi(
    emissions: Float[Tensor, "B T K"],
    start: Float[Tensor, " K"],
    transitions: Float[Tensor, "K K"],
    end: Float[Tensor, " K"],
    mask: Bool[Tensor, "B T"] | None = None,
) -> tuple[Int[Tensor, "B T"], Float[Tensor, " B"]]:
    """The path with the highest score (0 at padding), and its score; -inf if every path is illegal.

    The sweep to the right keeps maxima only. The predecessors are found on the way back, along the best path.
    """
    expect_scores("viterbi", emissions, start, transitions, end, mask)
    B, T, K = emissions.shape
    dtype = torch.promote_types(emissions.dtype, start.dtype)
    if not (B and T):
        return torch.zeros(B, T, dtype=torch.int64, device=emissions.device), emissions.new_zeros(B, dtype=dtype)
    here = blank(emissions, mask).to(dtype).permute(1, 2, 0).contiguous()  # (T, K, B)
    mask = real_positions(emissions, mask)
    table = transitions.to(dtype)
    best, sums, pairs = torch.empty_like(here), here.new_empty(K, K, B), table.unsqueeze(2)
    torch.add(start.unsqueeze(1), here[0], out=best[0])
    before, steps = best.unsqueeze(2).unbind(), best.unbind()
    for before_t, best_t, here_t in zip(before, steps[1:], here.unbind()[1:], strict=False):
        torch.add(before_t, pairs, out=sums)
        torch.amax(sums, 0, out=best_t).add_(here_t)
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
    emissions: Float[Tensor, "B T K"],
    start: Float[Tensor, " K"],
    transitions: Float[Tensor, "K K"],
    end: Float[Tensor, " K"],
    *,
    k: int,
    mask: Bool[Tensor, "B T"] | None = None,
) -> tuple[Int[Tensor, "B {k} T"], Float[Tensor, "B {k}"]]:
    """The k paths with the highest scores, the best first, and their scores.

    If a row has fewer paths, the others have the tags 0 and the score -inf. Raises `ValueError` if k is below 1.
    """
    expect_scores("k_best", emissions, start, transitions, end, mask)
    if k < 1:
        raise ValueError(f"k_best expects k of 1 or more, found {k}")
    B, T, _ = emissions.shape
    dtype = torch.promote_types(emissions.dtype, start.dtype)
    here, mask = blank(emissions, mask).to(dtype), real_positions(emissions, mask)
    if not T:
        return torch.zeros(B, k, 0, dtype=torch.int64, device=mask.device), _only_first(here.new_zeros(B), k)
    best, origins = [_only_first(start + here[:, 0], k)], []  # (B, K, k) and (B, K k) for each position
    for t in range(1, T):
        sums = (best[-1].unsqueeze(1) + transitions.t().unsqueeze(2)).flatten(2)  # [b, j, (i, rank)]
        found = sums.topk(k)
        best.append(found.values + here[:, t].unsqueeze(2))
        origins.append(found.indices.flatten(1))
    last = last_positions(mask)
    ending = torch.stack(best)[last, torch.arange(B, device=last.device)] + end.unsqueeze(1)
    scores, final = ending.flatten(1).topk(k)
    rank, path = final, [final // k]
    for t in range(T - 1, 0, -1):
        rank = torch.where((last < t).unsqueeze(1), final, origins[t - 1].gather(1, rank))
        path.append(rank // k)
    scores = torch.where(mask[:, :1], scores, _only_first(here.new_zeros(B), k))
    real = mask.unsqueeze(1) & (scores > -torch.inf).unsqueeze(2)
    return torch.stack(path[::-1], 2).masked_fill(~real, 0), scores


def _only_first(scores: Float[Tensor, "*shape"], k: int) -> Float[Tensor, "*shape {k}"]:
    """The scores as the first of k, with -inf in the others."""
    return F.pad(scores.unsqueeze(-1), (0, k - 1), value=-torch.inf)
