"""The best continuations: of a row, and of the rows of an input together, with a rule for ties.

Of equal scores the smaller parent is better, then the smaller id. What a row has is found where the model is; what is
left of it is small, and is handled in numpy, whose calls take less time than torch's.

The hypotheses of a step of beam search are arrays: B inputs that are not done, S slots of each, t tokens, C required
phrases, K continuations. A record of all that was considered is a tree of beginnings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

Ids = NDArray[np.int64]


class Live(NamedTuple):
    """The hypotheses that go on."""

    inputs: Ids
    """The numbers (B,) of the inputs that are not done."""
    totals: NDArray[np.float64]
    """Log-probabilities (B, S); -∞ in a slot that is free."""
    history: Ids
    """All tokens so far (B, S, t)."""
    progress: Ids
    """The states (B, S, C) of the required phrases."""


class Chosen(NamedTuple):
    """The best continuations of each input (B, K), the best first."""

    parents: Ids
    """The slots of the hypotheses that they continue."""
    ids: Ids
    totals: NDArray[np.float64]
    """Log-probabilities; -∞ where there was nothing more to choose."""
    progress: Ids
    """The states (B, K, C) of the required phrases."""


Fate = Literal["goes on", "ends", "is left out", "is too long", "comes too late"]
"""`is left out`: the others were better. `comes too late`: no better hypothesis of its input could come any more."""


class Candidate(NamedTuple):
    """A continuation that was considered: all ids with the new one (the end symbol too), and what became of it."""

    input: int
    ids: tuple[int, ...]
    log_probability: float
    fate: Fate


def candidates_of(
    live: Live,
    ids: Ids,
    totals: NDArray[np.float64],
    chosen: Chosen,
    ended: NDArray[np.bool_],
    goes_on: NDArray[np.bool_],
    inputs_after: Ids,
) -> Iterator[Candidate]:
    """The candidates of a step: `ids` and `totals` (B, S, M), and which of the chosen (B, K) ended and go on."""
    fates: dict[tuple[int, int, int], Fate] = {}
    is_done = ~np.isin(live.inputs, inputs_after)
    for place, slot in zip(*np.nonzero(chosen.totals > -math.inf), strict=True):
        fate: Fate = "comes too late" if is_done[place] else "goes on"
        if not goes_on[place, slot]:
            fate = "ends" if ended[place, slot] else "is too long"
        fates[int(place), int(chosen.parents[place, slot]), int(chosen.ids[place, slot])] = fate
    for place, slot, column in zip(*np.nonzero(totals > -math.inf), strict=True):
        id = int(ids[place, slot, column])
        whole = (*live.history[place, slot].tolist(), id)
        fate = fates.get((int(place), int(slot), id), "is left out")
        yield Candidate(int(live.inputs[place]), whole, float(totals[place, slot, column]), fate)


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
