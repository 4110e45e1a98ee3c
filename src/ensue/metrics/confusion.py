"""Precision, recall and F1 of labels, from counts of right and predicted ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class LabelScore:
    """The scores of one label, from 0 to 1; `support` counts how often it is right, `predicted` how often predicted."""

    precision: float
    recall: float
    f1: float
    support: int
    predicted: int

    @classmethod
    def of(cls, correct: int, support: int, predicted: int) -> LabelScore:
        """From counts. f1 is `2 precision recall / (precision + recall)`; a share of nothing is 0, as in conlleval."""
        f1 = share(2 * correct, support + predicted)
        return cls(share(correct, predicted), share(correct, support), f1, support, predicted)


def share(part: float, whole: float) -> float:
    """`part / whole`; 0 if `whole` is 0."""
    return part / whole if whole else 0.0


def label_scores(correct: Counter[str], gold: Counter[str], predicted: Counter[str]) -> dict[str, LabelScore]:
    """The scores of the labels that were right or predicted at least once, sorted by label."""
    return {
        label: LabelScore.of(correct[label], gold[label], predicted[label]) for label in sorted(gold.keys() | predicted)
    }


def overall(scores: Mapping[str, LabelScore], correct: Counter[str]) -> LabelScore:
    """The scores of all labels together: the micro average."""
    support = sum(score.support for score in scores.values())
    return LabelScore.of(correct.total(), support, sum(score.predicted for score in scores.values()))


def macro_f1(scores: Mapping[str, LabelScore]) -> float:
    """The mean f1 over labels, each with the same weight."""
    return share(sum(score.f1 for score in scores.values()), len(scores))


def weighted_f1(scores: Mapping[str, LabelScore]) -> float:
    """The mean f1 over labels, weighted by `support`."""
    weighted = sum(score.f1 * score.support for score in scores.values())
    return share(weighted, sum(score.support for score in scores.values()))


def most_confused(pairs: Counter[tuple[str, str]], limit: int) -> list[tuple[str, str, int]]:
    """The `limit` most frequent (gold, predicted, count) in which the two labels differ, the most frequent first."""
    wrong = [(gold, predicted, count) for (gold, predicted), count in pairs.items() if gold != predicted]
    return sorted(wrong, key=lambda confusion: (-confusion[2], confusion))[:limit]
