"""Scores of vectors of words in sentences: senses found, and meanings compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ensue.metrics.scores import Scores


@dataclass(frozen=True)
class SenseScores(Scores):
    """How many of the uses of words have the sense that was found.

    `micro_recall` is the share of all uses. `macro_recall` is the mean over words of the mean recall of their senses.
    `words` has the share of right uses of each word.
    """

    micro_recall: float
    macro_recall: float
    uses: int
    words: dict[str, float]

    def summary(self) -> str:
        recalls = f"micro recall {self.micro_recall:.4f}, macro recall {self.macro_recall:.4f}"
        return f"{recalls}, {self.uses:,} uses of {len(self.words):,} words"


def sense_scores(found: Mapping[str, Sequence[tuple[str, str]]]) -> SenseScores:
    """The scores of pairs of the right and the found sense, for each word."""
    right = {word: np.array([gold == sense for gold, sense in pairs]) for word, pairs in found.items()}
    recalls = [_mean_recall(pairs, right[word]) for word, pairs in found.items()]
    everything = np.concatenate(list(right.values()))
    shares = {word: float(is_right.mean()) for word, is_right in right.items()}
    return SenseScores(float(everything.mean()), float(np.mean(recalls)), len(everything), shares)


def _mean_recall(pairs: Sequence[tuple[str, str]], is_right: NDArray[np.bool_]) -> float:
    gold = np.array([sense for sense, _ in pairs])
    return float(np.mean([is_right[gold == sense].mean() for sense in np.unique(gold)]))


@dataclass(frozen=True)
class WordInContextScores(Scores):
    """The share of `pairs` of uses that are rightly said to have the same meaning, or not: the same where the cosine of
    both is above `threshold`, which is the best for other pairs.
    """

    accuracy: float
    threshold: float
    pairs: int

    def summary(self) -> str:
        return f"accuracy {self.accuracy:.4f}, {self.pairs:,} pairs, the same meaning above {self.threshold:.4f}"


def best_cosine(cosines: NDArray[np.float64], is_same: NDArray[np.bool_]) -> float:
    """The threshold with the most pairs on their right side: the same above it. Of equal ones it is the lowest."""
    order = np.argsort(cosines, kind="stable")
    values, same = cosines[order], is_same[order]
    right = np.concatenate([[0], np.cumsum(~same)]) + np.concatenate([np.cumsum(same[::-1])[::-1], [0]])
    edges = np.concatenate([[values[0] - 1], (values[1:] + values[:-1]) / 2, [values[-1]]])
    cuts = np.flatnonzero(np.concatenate([[True], values[1:] > values[:-1], [True]]))
    return float(edges[cuts[right[cuts].argmax()]])
