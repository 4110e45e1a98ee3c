"""The best paths of a single sentence, and the probabilities of paths, tags and spans, in numpy.

For one sentence, the overhead of torch's calls would dominate. The scores are defined in `chain.py`. Exported programs
contain this file, so it does not import torch.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.errors import EnsueError
from ensue.interruption import check_interrupted

Numbers = NDArray[np.floating[Any]]
NEVER = -1e30
"""The score of an illegal path in sums of exponentials, where -inf - -inf would be NaN."""
RESCALE_EVERY = 4
"""The number of steps between two rescalings of sums to a maximum of 1."""
MIN_SUM, MAX_STEP_NATS = 1e-150, 300.0
"""No term of a sum underflows if all sums exceed MIN_SUM and decrease by at most MAX_STEP_NATS nats in a step."""
MAX_BACK_POINTERS = 1 << 28
"""The maximum number of back pointers of the best paths, at all tags and positions."""
MAX_BLOCK_PROBABILITIES = 1 << 20
"""The maximum number of transition probabilities of spans or paths that are computed together."""


class ChainScores(NamedTuple):
    """The scores of a chain without emissions: start (K,), transitions (K, K) and end (K,); -inf if illegal."""

    start: Numbers
    transitions: Numbers
    end: Numbers


class Posterior(NamedTuple):
    """The distribution over the paths of tags of one sentence.

    Given the words, the tags are a Markov chain, with marginals and transitions; `tables` is None for independent tags.
    """

    scores: Numbers
    """The emission scores of tags (T, K)."""
    tables: ChainScores | None
    marginals: Numbers
    """The probability of each tag at each position (T, K)."""
    suffixes: Numbers
    """The logarithms of sums over all paths that begin with a tag (T, K), up to a constant for each position."""
    parts: Sequence[Any] = ()
    """The posteriors of several independent heads, or none."""

    @classmethod
    def of(cls, scores: Numbers, tables: ChainScores | None) -> "Posterior":
        """Return the posterior of the scores of one sentence. Raises ValueError for wrong sizes."""
        if tables is None:
            return cls(scores, None, softmax(scores), scores)
        _expect("Posterior.of", scores, *tables)
        if not len(scores):
            return cls(scores, tables, scores, scores)
        products = _compute_by_products(scores, tables)
        if products is None:
            return cls(scores, tables, *_compute_in_logs(scores, tables))
        with np.errstate(divide="ignore"):
            return cls(scores, tables, products[0], np.log(products[1]))

    @classmethod
    def concatenate(cls, parts: "Sequence[Posterior]") -> "Posterior":
        """Return the posterior of several independent heads, with concatenated scores and marginals."""
        scores = np.concatenate([part.scores for part in parts], 1)
        return cls(scores, None, np.concatenate([part.marginals for part in parts], 1), scores, tuple(parts))

    def spans(
        self, places: Sequence[tuple[int, int]], within: NDArray[np.bool_], goes_on: NDArray[np.bool_]
    ) -> Numbers:
        """Return the probabilities (N,) of N spans, the sums over the paths that contain them.

        Args:
            places: The start and the end of each span; the end is exclusive.
            within: The tags of the class of each span, (N, K).
            goes_on: Whether the tag of the column continues a span after the tag of the row, (K, K). A path contains a
                span if the span's first tag does not continue an earlier span, all other tags of the span continue it,
                and the tag after the span does not.
        """
        starts, ends = np.array(places, np.int64).reshape(-1, 2).T
        begins, stops = starts > 0, ends < len(self.scores)
        sums = self.marginals[starts].astype(np.float64)
        sums[begins] = self._advance(self.marginals[starts[begins] - 1], starts[begins], ~goes_on)
        sums *= within
        for length in range(1, int((ends - starts).max(initial=0))):
            check_interrupted()
            rows = starts + length < ends
            sums[rows] = self._advance(sums[rows], starts[rows] + length, goes_on)
        sums[stops] = self._advance(sums[stops], ends[stops], ~goes_on)
        return sums.sum(1)

    def _advance(self, sums: Numbers, positions: NDArray[np.int64], allowed: NDArray[np.bool_]) -> Numbers:
        """Return the sums (N, K) over paths after an allowed transition to each tag at `positions`."""
        if self.tables is None:
            return (sums @ allowed) * self.marginals[positions]
        after, size = np.empty_like(sums), max(1, MAX_BLOCK_PROBABILITIES // allowed.size)
        for first in range(0, len(positions), size):
            rows = slice(first, first + size)
            steps = softmax(self.tables.transitions + self.suffixes[positions[rows], np.newaxis])
            after[rows] = (sums[rows, np.newaxis] @ (steps * allowed))[:, 0]
        return after

    def log_probabilities(self, paths: NDArray[np.int64]) -> Numbers:
        """Return the log probabilities (N,) of paths (N, T)."""
        steps, tables = self.marginals[np.arange(paths.shape[1]), paths], self.tables
        if tables is not None:
            T, K = self.scores.shape
            pairs, places = np.unique((np.arange(1, T) * K + paths[:, :-1]) * K + paths[:, 1:], return_inverse=True)
            shares, size = np.empty(len(pairs)), max(1, MAX_BLOCK_PROBABILITIES // K)
            for rows in (slice(first, first + size) for first in range(0, len(pairs), size)):
                positions, before, after = np.unravel_index(pairs[rows], (T, K, K))
                after_each = softmax(tables.transitions[before] + self.suffixes[positions])
                shares[rows] = after_each[np.arange(len(after)), after]
            steps[:, 1:] = shares[places].reshape(len(paths), T - 1)
        with np.errstate(divide="ignore"):
            logs: Numbers = np.log(steps)
        return logs[:, 0] + logs[:, 1:].sum(1)

    def best(self, count: int) -> list[tuple[NDArray[np.int64], float]]:
        """Return up to `count` best paths with their probabilities, the best first: (T,), or (T, C) for C heads."""
        paths = _combine([part.rank(count) for part in self.parts], count) if self.parts else self.rank(count)
        return [(path, float(np.exp(log_p))) for path, log_p in paths]

    def rank(self, count: int) -> list[tuple[NDArray[np.int64], float]]:
        """Return up to `count` best paths (T,) of one head, with their log probabilities."""
        if not len(self.scores):
            return [(np.zeros(0, np.int64), 0.0)]
        paths = (
            _rank_independent(self.scores, count)
            if self.tables is None
            else rank_chained(self.scores, self.tables, count)
        )
        return list(zip(paths, self.log_probabilities(paths).tolist(), strict=True))


def _combine(heads: Sequence[list[tuple[NDArray[np.int64], float]]], count: int) -> list[tuple[Any, float]]:
    """Return the best combinations of paths of independent heads, from the best paths of each head."""
    best: list[tuple[tuple[NDArray[np.int64], ...], float]] = [((), 0.0)]
    for paths in heads:
        check_interrupted()
        longer = [((*prefix, path), sum_ + log_p) for prefix, sum_ in best for path, log_p in paths]
        best = sorted(longer, key=lambda combination: -combination[1])[:count]
    return [(np.stack(combination, 1), log_p) for combination, log_p in best]


def _rank_independent(scores: Numbers, count: int) -> NDArray[np.int64]:
    """Return the paths (N, T) with the highest sums of scores (T, K)."""
    sums, origins, K = np.zeros(1), [], scores.shape[1]
    for emission in scores.astype(np.float64):
        check_interrupted()
        longer = (sums[:, np.newaxis] + emission).ravel()
        origins.append(np.argsort(-longer, kind="stable")[:count])
        sums = longer[origins[-1]]
    rank, path = np.arange(len(sums)), []
    for origin in reversed(origins):
        path.append(origin[rank] % K)
        rank = origin[rank] // K
    return np.stack(path[::-1], 1)


def rank_chained(scores: Numbers, tables: ChainScores, count: int) -> NDArray[np.int64]:
    """Return the paths (N, T) with the highest scores. Raises EnsueError if the back pointers could take gigabytes.

    At each position, a prefix of paths is stored if its best continuation may be among the `count` best paths. The
    prefixes are sorted by their last tag, then by their scores. At most `count` prefixes of each last tag are stored.
    """
    if scores.size * count > MAX_BACK_POINTERS:
        raise EnsueError(
            f"the {count} best label sequences of {len(scores):,} words need more than 1 GB; request fewer sequences"
        )
    after = [tables.end]
    for emission in scores[:0:-1]:
        check_interrupted()
        after.append((tables.transitions + (emission + after[-1])).max(1))
    best, tags, origins, K = tables.start + scores[0], np.arange(len(tables.start)), [], len(tables.start)
    finite = np.abs(np.concatenate([scores.ravel(), tables.transitions.ravel(), *tables[::2]]))
    slack = 8 * len(scores) ** 2 * np.finfo(scores.dtype).eps * finite.max(where=finite < np.inf, initial=0.0)
    lowest = np.finfo(scores.dtype).min  # a lower sum is -inf: the path is illegal
    for emission, rest in zip(scores[1:], reversed(after[:-1]), strict=True):
        check_interrupted()
        sums = best[:, np.newaxis] + tables.transitions.take(tags, 0)
        totals = sums + emission
        bounds = (totals + rest).ravel()
        limit = np.partition(bounds, -count)[-count] - slack if bounds.size > count else -np.inf
        stored = np.flatnonzero(bounds >= max(limit, lowest))  # origin * K + tag
        stored = stored[np.lexsort((-sums.take(stored), stored % K))]
        if len(stored) > count:  # at most `count` of each last tag
            tags = stored % K
            stored = stored[np.arange(len(stored)) - np.searchsorted(tags, tags) < count]
        best, tags = totals.take(stored), stored % K
        origins.append(stored.astype(np.int32))
    ending = best + tables.end[tags]
    rank = np.argsort(-ending, kind="stable")[:count]
    rank = rank[ending[rank] > -np.inf]
    path = []
    for origin in reversed(origins):
        rank, tags = np.divmod(origin[rank], K)
        path.append(tags)
    return np.stack([rank, *reversed(path)], 1).astype(np.int64)


def viterbi_path(emissions: Numbers, start: Numbers, transitions: Numbers, end: Numbers) -> NDArray[np.int64]:
    """Return the tags of the path with the highest score through one sentence. Raises ValueError for wrong sizes."""
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
    """Return the probability of each tag at each position (T, K) of one sentence. Raises ValueError for wrong sizes."""
    marginals: Numbers = Posterior.of(emissions, ChainScores(start, transitions, end)).marginals
    return marginals.astype(emissions.dtype)


def _compute_by_products(scores: Numbers, tables: ChainScores) -> tuple[Numbers, Numbers] | None:
    """Return marginals and suffixes (T, K) by products of exponentials; None if a number may underflow."""
    start, transitions, end = tables
    arrays = [array.astype(np.float64) for array in (scores, np.stack((start, end)), transitions.ravel())]
    shifted = [array - np.maximum(array.max(-1, keepdims=True), NEVER) for array in arrays]
    decreases = (-float(array.min(where=array != -np.inf, initial=0.0)) for array in shifted)  # NaN if a score is NaN
    if not sum(decreases) <= MAX_STEP_NATS:
        return None
    emissions, ends, pairs = map(np.exp, shifted)
    pairs = pairs.reshape(transitions.shape)
    before, after = np.empty_like(emissions), np.empty_like(emissions)
    _sweep(ends[0], emissions, pairs, before)
    _sweep(ends[1], emissions[::-1], pairs.T, after[::-1])
    suffixes = emissions * after
    sums: Numbers = before * suffixes
    totals = sums.sum(1, keepdims=True)
    lowest = min(float(array.min(where=array > 0, initial=1.0)) for array in (before, after, totals))
    return (sums / totals, suffixes) if lowest >= MIN_SUM and totals.all() else None


def _compute_in_logs(scores: Numbers, tables: ChainScores) -> tuple[Numbers, Numbers]:
    """Return marginals and suffixes by logarithms of sums, which is slow, but does not underflow."""
    emissions, start, transitions, end = (np.maximum(array.astype(np.float64), NEVER) for array in (scores, *tables))
    before, after = np.empty_like(emissions), np.empty_like(emissions)
    before[0], after[-1] = start, end
    for t in range(1, len(emissions)):
        before[t] = _log_sum((before[t - 1] + emissions[t - 1])[:, np.newaxis] + transitions, 0)
    for t in range(len(emissions) - 1, 0, -1):
        after[t - 1] = _log_sum(transitions + (emissions[t] + after[t]), 1)
    suffixes = emissions + after
    return softmax(before + suffixes), suffixes


def softmax(scores: Numbers) -> Numbers:
    """Return the softmax over the last dimension; zeros where all scores are -inf."""
    exponentials = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), NEVER))
    totals = exponentials.sum(-1, keepdims=True)
    return exponentials / np.where(totals > 0, totals, 1.0)


def _log_sum(scores: Numbers, dim: int) -> Numbers:
    top = scores.max(dim)
    return top + np.log(np.exp(scores - np.expand_dims(top, dim)).sum(dim))


def _sweep(first: Numbers, emissions: Numbers, pairs: Numbers, before: Numbers) -> None:
    """Write to `before` the sums over all paths to each tag, without its emission, up to a factor for each position."""
    sums = first
    for t, emission in enumerate(emissions):
        before[t] = sums
        sums = (sums * emission) @ pairs
        if t % RESCALE_EVERY == RESCALE_EVERY - 1:
            sums /= sums.max() or 1.0


def _expect(where: str, emissions: Numbers, start: Numbers, transitions: Numbers, end: Numbers) -> None:
    K = len(start)
    if emissions.shape[1:] != (K,) or transitions.shape != (K, K) or end.shape != (K,):
        sizes = ", ".join(str(array.shape) for array in (emissions, start, transitions, end))
        raise ValueError(f"{where} expects scores (T, K), (K,), (K, K), (K,), found {sizes}")
