"""What was said against what is right: counts, and the shares that they amount to. What is counted, others say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class LabelScore:
    """One label's shares, 0 to 1: of the times that it was said (`predicted`) and that it is right (`support`)."""

    precision: float
    recall: float
    f1: float
    support: int
    predicted: int

    @classmethod
    def of(cls, correct: int, support: int, predicted: int) -> LabelScore:
        """f1 is `2 precision recall / (precision + recall)`; a share of nothing is 0, as conlleval has it."""
        f1 = share(2 * correct, support + predicted)
        return cls(share(correct, predicted), share(correct, support), f1, support, predicted)


def share(part: float, whole: float) -> float:
    """`part / whole`, and 0 of nothing."""
    return part / whole if whole else 0.0


def label_scores(correct: Counter[str], gold: Counter[str], predicted: Counter[str]) -> dict[str, LabelScore]:
    """The labels that were right or said at least once, sorted."""
    return {
        label: LabelScore.of(correct[label], gold[label], predicted[label]) for label in sorted(gold.keys() | predicted)
    }


def overall(scores: Mapping[str, LabelScore], correct: Counter[str]) -> LabelScore:
    """All labels counted as one: the micro average."""
    support = sum(score.support for score in scores.values())
    return LabelScore.of(correct.total(), support, sum(score.predicted for score in scores.values()))


def macro_f1(scores: Mapping[str, LabelScore]) -> float:
    """The mean over the labels that were right or said at least once, each counting the same."""
    return share(sum(score.f1 for score in scores.values()), len(scores))


def weighted_f1(scores: Mapping[str, LabelScore]) -> float:
    """The mean over labels, each counting as often as it is right."""
    weighted = sum(score.f1 * score.support for score in scores.values())
    return share(weighted, sum(score.support for score in scores.values()))


def most_confused(pairs: Counter[tuple[str, str]], limit: int) -> list[tuple[str, str, int]]:
    """(gold, predicted, count) where the two differ, the most frequent first."""
    wrong = [(gold, predicted, count) for (gold, predicted), count in pairs.items() if gold != predicted]
    return sorted(wrong, key=lambda confusion: (-confusion[2], confusion))[:limit]
