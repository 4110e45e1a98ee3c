"""The hypotheses of a step of beam search as arrays, and the choice of the best continuations.

Ties of scores are broken by the smaller parent, then by the smaller id. `beam.py` reduces the scores to a few
candidates on the model's device. For small arrays, numpy is faster than torch. Exported models contain this file.

Dimensions: B inputs that are not done, S slots of each input, t tokens, C required phrases, K continuations.
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


class Live(NamedTuple):
    """The live hypotheses."""

    inputs: Ids
    """The indices (B,) of the inputs that are not done."""
    totals: NDArray[np.float64]
    """The log-probabilities (B, S) of hypotheses; -∞ in an empty slot."""
    history: Ids
    """The tokens of hypotheses so far (B, S, t)."""
    progress: Ids
    """The states (B, S, C) of the automata of required phrases."""


class Continuations(NamedTuple):
    """The best continuations of each input (B, K), the best first."""

    parents: Ids
    """The slots of the parent hypotheses."""
    ids: Ids
    """The last tokens of the continuations."""
    totals: NDArray[np.float64]
    """The log-probabilities of the continuations; -∞ if there were fewer than K continuations."""
    progress: Ids
    """The states (B, K, C) of the automata of required phrases."""


Fate = Literal["goes on", "ends", "is left out", "is too long", "comes too late"]
"""The outcome of a candidate. "is left out": other candidates were better. "comes too late": the input of the candidate
was done in this step.
"""


class Candidate(NamedTuple):
    """A candidate of beam search."""

    input: int
    ids: tuple[int, ...]
    """All ids including the last one, which may be the end symbol."""
    log_probability: float
    fate: Fate


def candidates_of(
    live: Live, ids: Ids, totals: NDArray[np.float64], best: Continuations, ended: NDArray[np.bool_],
    is_live: NDArray[np.bool_], inputs_after: Ids,
) -> Iterator[Candidate]:  # fmt: skip
    """Yield the candidates of a step from `ids` and `totals` (B, S, M) with their outcomes.

    The masks `ended` and `is_live` (B, K) mark the complete and the live hypotheses of `best`. `inputs_after` are the
    inputs that are not done after the step.
    """
    fates: dict[tuple[int, int, int], Fate] = {}
    is_done = ~np.isin(live.inputs, inputs_after)
    for row, slot in zip(*np.nonzero(best.totals > -math.inf), strict=True):
        fate: Fate = "comes too late" if is_done[row] else "goes on"
        if not is_live[row, slot]:
            fate = "ends" if ended[row, slot] else "is too long"
        fates[int(row), int(best.parents[row, slot]), int(best.ids[row, slot])] = fate
    for row, slot, column in zip(*np.nonzero(totals > -math.inf), strict=True):
        id = int(ids[row, slot, column])
        all_ids = (*live.history[row, slot].tolist(), id)
        fate = fates.get((int(row), int(slot), id), "is left out")
        yield Candidate(int(live.inputs[row]), all_ids, float(totals[row, slot, column]), fate)


def select_best(totals: NDArray[np.float64], k: int, banks: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the indices (B, k) of the `k` largest `totals` (B, M) of each input, sorted stably in descending order.

    `banks` (B, M) are the numbers of required tokens that candidates have (dynamic beam allocation, Post & Vilar 2018).
    The result then has the best candidate of each bank, in descending order of banks, then the second-best candidates.
    """
    order = (-totals).argsort(1, kind="stable")
    if banks is not None:
        ranked = np.take_along_axis(banks, order, 1)
        numbers = np.arange(ranked.max() + 1)
        rank_in_bank = (ranked[:, :, None] == numbers).cumsum(1)
        priorities = np.take_along_axis(rank_in_bank, ranked[:, :, None], 2)[:, :, 0] * len(numbers) - ranked
        priorities[np.take_along_axis(totals, order, 1) == -math.inf] = np.iinfo(np.int64).max
        order = np.take_along_axis(order, priorities.argsort(1, kind="stable"), 1)
    return order[:, :k]
