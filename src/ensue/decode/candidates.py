"""The best continuations: of a row, and of the rows of an input together, with a rule for ties.

Of equal scores the smaller parent is better, then the smaller id. What a row has is found where the model is; what is
left of it is small, and is handled in numpy, whose calls take less time than torch's.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

CHUNK = 64
"""The best k scores stand in the k chunks with the largest maxima. Maxima are found 10 times as fast as the best k."""


def best_ids(scores: Float[Tensor, "R V"], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The ids (R, k) of the `k` largest scores of each row (all, if there are fewer), ascending, and the scores."""
    size = scores.shape[1]
    if size <= k:
        return np.broadcast_to(np.arange(size), scores.shape), scores.double().cpu().numpy()
    if k == 1 and scores.is_cpu:  # of equal ones numpy takes the first
        best = scores.numpy()
        ids = best.argmax(1)[:, None]
        return ids, np.take_along_axis(best, ids, 1).astype(np.float64)
    found = [part.cpu().numpy() for part in _largest(scores, k + 1)]
    values, ids = found[0].astype(np.float64), found[1]
    tied = (values[:, k - 1] == values[:, k]) & (values[:, k] > -math.inf)
    for row in np.flatnonzero(tied):  # torch says nothing of which of them it takes
        ids[row, :k] = scores[row].sort(descending=True, stable=True).indices[:k].cpu().numpy()
        values[row, :k] = scores[row][ids[row, :k]].cpu().numpy()
    order = ids[:, :k].argsort(1)
    return np.take_along_axis(ids, order, 1), np.take_along_axis(values, order, 1)


def continuations(
    log_p: Float[Tensor, "R V"], k: int, wanted: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The ids (R, M) that may follow each row, ascending, and their log-probabilities: the `k` best, and the `wanted`.

    Of `wanted` (R, A), which may be padded with -1, all are there, and the `k` best others. `log_p` is written to.
    """
    if not wanted.shape[1]:
        return best_ids(log_p, k)
    rows, places = np.nonzero(wanted >= 0)
    at = torch.from_numpy(rows).to(log_p.device), torch.from_numpy(wanted[rows, places]).to(log_p.device)
    extra = np.full(wanted.shape, -math.inf)
    extra[rows, places] = log_p[at].double().cpu().numpy()
    log_p[at] = -math.inf
    ids, values = best_ids(log_p, k)
    ids, values = np.concatenate((ids, wanted), 1), np.concatenate((values, extra), 1)
    order = ids.argsort(1, kind="stable")
    return np.take_along_axis(ids, order, 1), np.take_along_axis(values, order, 1)


def _largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The `k` largest scores of each row, the largest first, and their ids; of equal ones any."""
    rows, size = scores.shape
    chunks = size // CHUNK
    if chunks < 2 * k:
        values, ids = scores.topk(k)
        return values, ids
    within = chunks * CHUNK
    chosen = scores[:, :within].view(rows, chunks, CHUNK).amax(2).topk(k, sorted=False).indices
    columns = torch.arange(size, device=scores.device)
    ids = (chosen.unsqueeze(2) * CHUNK + columns[:CHUNK]).flatten(1)
    ids = torch.cat((ids, columns[within:].expand(rows, -1)), dim=1)
    values, places = scores.gather(1, ids).topk(k)
    return values, ids.gather(1, places)


def best_places(totals: NDArray[np.float64], k: int, banks: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """The places of the `k` best of the totals (B, M) of each input, the best first; of equal ones the earlier place.

    With `banks` (B, M) the best of every bank come first, those of the highest bank before the others, then the second
    of every bank, and so on: each bank has its share of a beam (Post & Vilar 2018).
    """
    order = (-totals).argsort(1, kind="stable")
    if banks is not None:
        ranked = np.take_along_axis(banks, order, 1)
        numbers = np.arange(ranked.max() + 1)
        seen = (ranked[:, :, None] == numbers).cumsum(1)
        turns = np.take_along_axis(seen, ranked[:, :, None], 2)[:, :, 0] * len(numbers) - ranked
        turns[np.take_along_axis(totals, order, 1) == -math.inf] = np.iinfo(np.int64).max
        order = np.take_along_axis(order, turns.argsort(1, kind="stable"), 1)
    return order[:, :k]
