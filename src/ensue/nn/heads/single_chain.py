"""A single sentence's best paths, and the probabilities of paths, tags and spans, in numpy: in torch the calls would
take most of the time.

These are functions of the same scores as in `chain.py`. Exported programs carry this file, so it imports numpy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.errors import EnsueError
from ensue.interruption import check_interrupted

Numbers = NDArray[np.floating[Any]]
NEVER = -1e30
"""The score of an illegal path in sums over logarithms, where -inf - -inf would be NaN."""
RESCALE_EVERY = 4
"""After this many steps, sums are scaled to a maximum of 1."""
LEAST = 1e-150
"""If no sum is below this, and none becomes `MOST_NATS` smaller in a step, no sum was lost because it was too small."""
MOST_NATS = 300.0
MOST_ORIGINS = 1 << 28
"""The most numbers that are kept to find the best paths: a gigabyte."""
MOST_STEPS = 1 << 20
"""The most probabilities of a tag after another one that are computed together for spans."""


class ChainScores(NamedTuple):
    """The scores of a chain without emissions: start (K,), transitions (K, K), end (K,); -inf for what is illegal."""

    start: Numbers
    transitions: Numbers
    end: Numbers


class Posterior(NamedTuple):
    """The probabilities of all paths through one sentence.

    Given the words, the tags are a Markov chain: it has the marginals, and at each position a probability of each tag
    after each other one. `tables` are None where each tag is chosen by itself.
    """

    scores: Numbers
    """The scores of tags (T, K), from which the best path follows."""
    tables: ChainScores | None
    marginals: Numbers
    """The probability of each tag at each position (T, K)."""
    suffixes: Numbers
    """The logarithm of the sum over all paths that begin with a tag (T, K), up to a number for each position."""
    parts: Sequence[Any] = ()
    """Of several heads side by side, those of each."""

    @classmethod
    def of(cls, scores: Numbers, tables: ChainScores | None) -> Posterior:
        """That of the scores of one sentence. Raises `ValueError` for wrong sizes."""
        if tables is None:
            return cls(scores, None, softmax(scores), scores)
        _expect("Posterior.of", scores, *tables)
        if not len(scores):
            return cls(scores, tables, scores, scores)
        found = _by_products(scores, tables)
        if found is None:
            return cls(scores, tables, *_in_logs(scores, tables))
        with np.errstate(divide="ignore"):
            return cls(scores, tables, found[0], np.log(found[1]))

    @classmethod
    def beside(cls, parts: Sequence[Posterior]) -> Posterior:
        """The scores and marginals of several heads side by side; each has paths of its own."""
        scores = np.concatenate([part.scores for part in parts], 1)
        return cls(scores, None, np.concatenate([part.marginals for part in parts], 1), scores, tuple(parts))

    def spans(
        self, places: Sequence[tuple[int, int]], within: NDArray[np.bool_], goes_on: NDArray[np.bool_]
    ) -> Numbers:
        """The probabilities (N,) of spans from a position up to another one, which is not included.

        `within` (N, K) are the tags of the class of each span. `goes_on` (K, K) says after which tag (row) which other
        one (column) continues a span. A path has the span if it goes on at each of its positions but the first, and
        neither there nor behind its end. These paths are summed, for all spans at once.
        """
        starts, ends = np.array(places, np.int64).reshape(-1, 2).T
        begins, stops = starts > 0, ends < len(self.scores)
        sums = self.marginals[starts].astype(np.float64)
        sums[begins] = self._passed(self.marginals[starts[begins] - 1], starts[begins], ~goes_on)
        sums *= within
        for length in range(1, int((ends - starts).max(initial=0))):
            check_interrupted()
            rows = starts + length < ends
            sums[rows] = self._passed(sums[rows], starts[rows] + length, goes_on)
        sums[stops] = self._passed(sums[stops], ends[stops], ~goes_on)
        found: Numbers = sums.sum(1)
        return found

    def _passed(self, sums: Numbers, places: NDArray[np.int64], allowed: NDArray[np.bool_]) -> Numbers:
        """Sums (N, K) over paths up to some places, gone on to each tag there that is allowed after the tag before."""
        if self.tables is None:
            return (sums @ allowed) * self.marginals[places]
        found, rows = np.empty_like(sums), max(1, MOST_STEPS // allowed.size)
        for first in range(0, len(places), rows):
            some = slice(first, first + rows)
            steps = softmax(self.tables.transitions + self.suffixes[places[some], np.newaxis])
            found[some] = (sums[some, np.newaxis] @ (steps * allowed))[:, 0]
        return found

    def log_probability(self, path: NDArray[np.int64]) -> float:
        """The logarithm of the probability of one path (T,)."""
        if not len(path):
            return 0.0
        places = np.arange(1, len(path))
        if self.tables is None:
            steps = self.marginals[places]
        else:
            steps = softmax(self.tables.transitions[path[:-1]] + self.suffixes[1:])
        with np.errstate(divide="ignore"):
            return float(np.log(self.marginals[0, path[0]]) + np.log(steps[places - 1, path[1:]]).sum())

    def best(self, count: int) -> list[tuple[NDArray[np.int64], float]]:
        """The `count` best paths (T,) with their probabilities, the best first; all, if there are not so many. Of
        several heads they are paths of all of them (T, C).
        """
        found = _together([part.ranked(count) for part in self.parts], count) if self.parts else self.ranked(count)
        return [(path, float(np.exp(logs))) for path, logs in found]

    def ranked(self, count: int) -> list[tuple[NDArray[np.int64], float]]:
        """The `count` best paths (T,) of one head, with the logarithms of their probabilities."""
        if not len(self.scores):
            return [(np.zeros(0, np.int64), 0.0)]
        paths = _independent(self.scores, count) if self.tables is None else _chained(self.scores, self.tables, count)
        return [(path, self.log_probability(path)) for path in paths]


def _together(of_heads: Sequence[list[tuple[NDArray[np.int64], float]]], count: int) -> list[tuple[Any, float]]:
    """The best combinations of paths of heads that are independent of each other, from the best paths of each; products
    of probabilities would be too small for a long sentence.
    """
    found: list[tuple[tuple[NDArray[np.int64], ...], float]] = [((), 0.0)]
    for paths in of_heads:
        check_interrupted()
        longer = [((*chosen, path), logs + own) for chosen, logs in found for path, own in paths]
        found = sorted(longer, key=lambda combined: -combined[1])[:count]
    return [(np.stack(chosen, 1), logs) for chosen, logs in found]


def _independent(scores: Numbers, count: int) -> NDArray[np.int64]:
    """The paths (N, T) with the highest sums of scores (T, K)."""
    sums, origins, K = np.zeros(1), [], scores.shape[1]
    for here in scores.astype(np.float64):
        check_interrupted()
        found = (sums[:, np.newaxis] + here).ravel()
        origins.append(np.argsort(-found, kind="stable")[:count])
        sums = found[origins[-1]]
    rank, path = np.arange(len(sums)), []
    for origin in reversed(origins):
        path.append(origin[rank] % K)
        rank = origin[rank] // K
    return np.stack(path[::-1], 1)


def _chained(scores: Numbers, tables: ChainScores, count: int) -> NDArray[np.int64]:
    """The paths (N, T) with the highest scores of a chain, by the sums of `viterbi_path`: a list of the best ones to
    each tag, where Viterbi keeps one. Raises EnsueError if the lists would take too much memory.
    """
    if scores.size * count > MOST_ORIGINS:
        raise EnsueError(
            f"{count} paths through {len(scores):,} words take more than a gigabyte; expected fewer of them"
        )
    best, origins, K = (tables.start + scores[0])[:, np.newaxis], [], len(tables.start)  # (K, ranks)
    for here in scores[1:]:
        check_interrupted()
        sums = (best + tables.transitions.T[:, :, np.newaxis]).reshape(K, -1)  # [j, (i, rank)]
        origin = np.argsort(-sums, kind="stable")[:, :count]
        origins.append((origin.astype(np.int32), best.shape[1]))
        best = np.take_along_axis(sums, origin, 1) + here[:, np.newaxis]
    ending = (best + tables.end[:, np.newaxis]).ravel()
    chosen = np.argsort(-ending, kind="stable")[:count]
    tag, rank = np.divmod(chosen[ending[chosen] > -np.inf], best.shape[1])
    path = [tag]
    for origin, ranks in reversed(origins):
        tag, rank = np.divmod(origin[tag, rank], ranks)
        path.append(tag)
    return np.stack(path[::-1], 1)


def viterbi_path(
    emissions: Numbers,
    start: Numbers,
    transitions: Numbers,
    end: Numbers,
) -> NDArray[np.int64]:
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


def marginals_of_one(emissions: Numbers, start: Numbers, transitions: Numbers, end: Numbers) -> Numbers:
    """The probability of each tag at each position (T, K) of one sentence. Raises `ValueError` for wrong sizes."""
    found: Numbers = Posterior.of(emissions, ChainScores(start, transitions, end)).marginals.astype(emissions.dtype)
    return found


def _by_products(scores: Numbers, tables: ChainScores) -> tuple[Numbers, Numbers] | None:
    """The marginals (T, K) and the suffixes (T, K) by sums from both sides, as products of exponentials; None if a
    number may be too small to be exact.
    """
    start, transitions, end = tables
    wide = [part.astype(np.float64) for part in (scores, np.stack((start, end)), transitions.ravel())]
    shifted = [part - np.maximum(part.max(-1, keepdims=True), NEVER) for part in wide]
    if not sum(map(_depth, shifted)) <= MOST_NATS:
        return None
    here, ends, pairs = map(np.exp, shifted)
    pairs = pairs.reshape(transitions.shape)
    before, behind = np.empty_like(here), np.empty_like(here)
    _sweep(ends[0], here, pairs, before)
    _sweep(ends[1], here[::-1], pairs.T, behind[::-1])
    suffixes = here * behind
    found: Numbers = before * suffixes
    totals = found.sum(1, keepdims=True)
    least = min(float(part.min(where=part > 0, initial=1.0)) for part in (before, behind, totals))
    return (found / totals, suffixes) if least >= LEAST and totals.all() else None


def _in_logs(scores: Numbers, tables: ChainScores) -> tuple[Numbers, Numbers]:
    """Both of them by logarithms of the sums: slow, and exact for all numbers."""
    here, start, transitions, end = (np.maximum(part.astype(np.float64), NEVER) for part in (scores, *tables))
    before, behind = np.empty_like(here), np.empty_like(here)
    before[0], behind[-1] = start, end
    for t in range(1, len(here)):
        before[t] = _log_sum((before[t - 1] + here[t - 1])[:, np.newaxis] + transitions, 0)
    for t in range(len(here) - 1, 0, -1):
        behind[t - 1] = _log_sum(transitions + (here[t] + behind[t]), 1)
    suffixes = here + behind
    return softmax(before + suffixes), suffixes


def softmax(scores: Numbers) -> Numbers:
    """The shares of exponentials over the last dimension; zeros where all scores are -inf."""
    shares = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), NEVER))
    totals = shares.sum(-1, keepdims=True)
    found: Numbers = shares / np.where(totals > 0, totals, 1.0)
    return found


def _log_sum(scores: Numbers, dim: int) -> Numbers:
    top = scores.max(dim)
    found: Numbers = top + np.log(np.exp(scores - np.expand_dims(top, dim)).sum(dim))
    return found


def _sweep(
    first: Numbers,
    here: Numbers,
    pairs: Numbers,
    before: Numbers,
) -> None:
    """Writes the sums over all paths from the left to a tag, without its own emission, up to a factor for each row."""
    sums = first
    for t, emission in enumerate(here):
        before[t] = sums
        sums = (sums * emission) @ pairs
        if t % RESCALE_EVERY == RESCALE_EVERY - 1:
            sums /= sums.max() or 1.0


def _depth(scores: Numbers) -> float:
    """How far the lowest score that is not -inf is below 0; NaN if a score is NaN."""
    return -float(scores.min(where=scores != -np.inf, initial=0.0))


def _expect(where: str, emissions: Numbers, start: Numbers, transitions: Numbers, end: Numbers) -> None:
    K = len(start)
    if emissions.shape[1:] != (K,) or transitions.shape != (K, K) or end.shape != (K,):
        sizes = ", ".join(str(part.shape) for part in (emissions, start, transitions, end))
        raise ValueError(f"{where} expects scores (T, K), (K,), (K, K), (K,), found {sizes}")
