"""Precision, recall and F1 of labels, from counts of right and predicted ones."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ensue.metrics.scores import Scores

MOST_LABELS = 100
"""The most labels in a table that a run keeps of a validation, and in a confusion matrix."""


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


@dataclass(frozen=True)
class LabelsScores(Scores):
    """The scores of a model that gives labels: shares from 0 to 1, by label too.

    `macro_f1` is the mean of the f1 in `per_label`, whose labels were right or predicted at least once.
    `unknown_labels` counts right labels that the model does not have, the most frequent first.
    """

    accuracy: float
    macro_f1: float
    per_label: dict[str, LabelScore]
    unknown_labels: dict[str, int]

    @property
    @abstractmethod
    def headline(self) -> tuple[str, float]:
        """The name of the second score of the summary, and the score."""

    def summary(self) -> str:
        name, f1 = self.headline
        return f"accuracy {100 * self.accuracy:.2f} %, {name} {100 * f1:.2f}"


def most_supported(labels: Iterable[str], support: Mapping[str, int]) -> list[str]:
    """The labels, in their order; of more than 100 those that are right most often."""
    labels = list(labels)
    kept = set(sorted(labels, key=lambda label: -support[label])[:MOST_LABELS])
    return [label for label in labels if label in kept]


def brief(scores: dict[str, Any]) -> dict[str, Any]:
    """`as_json` of any scores. Tables of labels have the 100 that are right most often."""
    if "per_label" not in scores:
        return scores
    labels = most_supported(scores["per_label"], {name: one["support"] for name, one in scores["per_label"].items()})
    unknown = dict(islice(scores["unknown_labels"].items(), MOST_LABELS))
    return scores | {"per_label": {name: scores["per_label"][name] for name in labels}, "unknown_labels": unknown}


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
