"""A single sentence's best path and marginals, in numpy: in torch the calls would take most of the time.

These are functions of the same scores as in `chain.py`.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int

from ensue.nn.heads.chain import RESCALE_EVERY, marginals

LEAST = 1e-150
"""If no sum is below this, and none becomes `MOST_NATS` smaller in a step, no sum was lost because it was too small."""
MOST_NATS = 300.0


def viterbi_path(
    emissions: Float[np.ndarray, "T K"],
    start: Float[np.ndarray, " K"],
    transitions: Float[np.ndarray, "K K"],
    end: Float[np.ndarray, " K"],
) -> Int[np.ndarray, " T"]:
    """The tags of the path with the highest score through one sentence. Raises `ValueError` for wrong sizes."""
    _expect("viterbi_path", emissions, start, transitions, end)
    if not len(emissions):
        return np.zeros(0, dtype=np.int64)
    best = [start + emissions[0]]
    for emission in emissions[1:]:
        best.append((best[-1][:, np.newaxis] + transitions).max(axis=0) + emission)
    tag = int((best.pop() + end).argmax())
    path = [tag]
    for scores in reversed(best):
        tag = int((scores + transitions[:, tag]).argmax())
        path.append(tag)
    return np.array(path[::-1], dtype=np.int64)


def marginals_of_one(
    emissions: Float[np.ndarray, "T K"],
    start: Float[np.ndarray, " K"],
    transitions: Float[np.ndarray, "K K"],
    end: Float[np.ndarray, " K"],
) -> Float[np.ndarray, "T K"]:
    """The probability of each tag at each position of one sentence. Raises `ValueError` for wrong sizes."""
    _expect("marginals_of_one", emissions, start, transitions, end)
    found = _by_products(emissions, start, transitions, end) if len(emissions) else np.zeros(emissions.shape)
    if found is None:
        tables = (
            torch.from_numpy(np.ascontiguousarray(part)) for part in (emissions[np.newaxis], start, transitions, end)
        )
        found = marginals(*tables)[0].numpy()
    return found.astype(emissions.dtype)


def _by_products(
    emissions: Float[np.ndarray, "T K"],
    start: Float[np.ndarray, " K"],
    transitions: Float[np.ndarray, "K K"],
    end: Float[np.ndarray, " K"],
) -> Float[np.ndarray, "T K"] | None:
    """Sums from both sides as products of exponentials; None if a number may be too small to be exact."""
    tables = [part.astype(np.float64) for part in (emissions, np.stack((start, end)), transitions.ravel())]
    shifted = [part - part.max(-1, keepdims=True) for part in tables]
    if not sum(map(_depth, shifted)) <= MOST_NATS:
        return None
    here, ends, pairs = map(np.exp, shifted)
    pairs = pairs.reshape(transitions.shape)
    before, behind = np.empty_like(here), np.empty_like(here)
    _sweep(ends[0], here, pairs, before)
    _sweep(ends[1], here[::-1], pairs.T, behind[::-1])
    found: Float[np.ndarray, "T K"] = before * here * behind
    totals = found.sum(1, keepdims=True)
    least = min(float(part.min(where=part > 0, initial=1.0)) for part in (before, behind, totals))
    return found / totals if least >= LEAST and totals.all() else None


def _sweep(
    first: Float[np.ndarray, " K"],
    here: Float[np.ndarray, "T K"],
    pairs: Float[np.ndarray, "K K"],
    before: Float[np.ndarray, "T K"],
) -> None:
    """Writes the sums over all paths from the left to a tag, without its own emission, up to a factor for each row."""
    sums = first
    for t, emission in enumerate(here):
        before[t] = sums
        sums = (sums * emission) @ pairs
        if t % RESCALE_EVERY == RESCALE_EVERY - 1:
            sums /= sums.max() or 1.0


def _depth(scores: Float[np.ndarray, "*sizes"]) -> float:
    """How far the lowest score that is not -inf is below 0; NaN if a score is NaN."""
    return -float(scores.min(where=scores != -np.inf, initial=0.0))


def _expect(where: str, emissions: np.ndarray, start: np.ndarray, transitions: np.ndarray, end: np.ndarray) -> None:
    K = len(start)
    if emissions.shape[1:] != (K,) or transitions.shape != (K, K) or end.shape != (K,):
        sizes = ", ".join(str(part.shape) for part in (emissions, start, transitions, end))
        raise ValueError(f"{where} expects scores (T, K), (K,), (K, K), (K,), found {sizes}")
