"""The best continuations of the rows of an input together, with a rule for ties.

Of equal scores the smaller parent is better, then the smaller id. What a row has is found where the model is
(`beam.py`); what is left of it is small, and is handled in numpy, whose calls take less time than torch's. Exports
carry this file.

The hypotheses of a step of beam search are arrays: B inputs that are not done, S slots of each, t tokens, C required
phrases, K continuations. A record of all that was considered is a tree of beginnings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
