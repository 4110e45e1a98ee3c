"""Precision, recall and F1 of labels from counts."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from operator import add
from typing import Any, Generic, TypeVar

from ensue.metrics.scores import ItemRows, ScoredItems, Scores, compute_f1, f1_score, quotient, ratio_or_zero

MAX_LABELS = 100
"""The maximum number of labels in the saved scores of a validation, and in a confusion matrix."""


@dataclass(frozen=True)
class LabelScore:
    """The scores of a label. `support` is the number of gold labels, and `predicted` the number of predictions."""

    precision: float
    recall: float
    f1: float
    support: int
    predicted: int

    @classmethod
    def of(cls, correct: int, support: int, predicted: int) -> "LabelScore":
        """Compute the scores from counts. Quotients with a denominator of 0 are 0, as in conlleval."""
        f1 = compute_f1(correct, support, predicted)
        return cls(ratio_or_zero(correct, predicted), ratio_or_zero(correct, support), f1, support, predicted)


@dataclass(frozen=True)
class LabelsScores(Scores):
    """Scores of predicted labels, from 0 to 1.

    `per_label` has the labels that are a gold label or a prediction at least once, and `macro_f1` is their mean F1.
    `unknown_labels` has the counts of gold labels that the model does not have, the most frequent first.
    """

    accuracy: float
    macro_f1: float
    per_label: dict[str, LabelScore]
    unknown_labels: dict[str, int]

    @property
    @abstractmethod
    def headline(self) -> tuple[str, float]:
        """The name and the value of the second score in the summary."""

    def summary(self) -> str:
        name, f1 = self.headline
        return f"accuracy {100 * self.accuracy:.2f} %, {name} {100 * f1:.2f}"


ScoresT = TypeVar("ScoresT", bound=LabelsScores)


class Tally(ABC, Generic[ScoresT]):
    """A counter of gold and predicted labels. Memory does not grow with the number of items."""

    def __init__(self, f1_name: str | None = None) -> None:
        self.item_scores = {"accuracy": quotient(0, 1)} | ({f1_name: f1_score(2, 3, 4)} if f1_name else {})
        self.size, self.sums = 0, (0, 0, 0, 0, 0)
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.correct: Counter[str] = Counter()
        self.gold: Counter[str] = Counter()
        self.predicted: Counter[str] = Counter()

    @abstractmethod
    def add(self, *args: Any, **kwargs: Any) -> tuple[int, ...]:
        """Count an item. Return counts: correct predictions, predictions; correct, gold and predicted labels."""

    @abstractmethod
    def scores(self) -> ScoresT:
        """Return the scores of all counted items."""

    def scores_of(self, answers: Iterable[tuple[Any, ...]]) -> ScoresT:
        """Count items and return the scores. Each answer is a tuple of arguments of `add`."""
        for answer in answers:
            self.add(*answer)
        return self.scores()

    def items_of(self, answers: Iterable[tuple[Any, ...]], unit: str) -> ScoredItems:
        """Count items and return them for a significance test. `unit` is the noun of the items."""
        return ItemRows(self.add(*answer) for answer in answers).build_items(unit, self.item_scores)

    def _count(
        self, right: int, size: int, correct: Collection[str], gold: Collection[str], predicted: Collection[str]
    ) -> tuple[int, ...]:
        self.correct.update(correct)
        self.gold.update(gold)
        self.predicted.update(predicted)
        row = right, size, len(correct), len(gold), len(predicted)
        self.size, self.sums = self.size + 1, tuple(map(add, self.sums, row))
        return row

    @property
    def accuracy(self) -> float:
        """The share of correct predictions."""
        return ratio_or_zero(*self.sums[:2])

    @property
    def per_label(self) -> dict[str, LabelScore]:
        """The scores of all gold and predicted labels, sorted by label."""
        labels = sorted(self.gold.keys() | self.predicted)
        return {name: LabelScore.of(self.correct[name], self.gold[name], self.predicted[name]) for name in labels}

    @property
    def overall(self) -> LabelScore:
        """The micro average over all labels."""
        return LabelScore.of(*self.sums[2:])

    def unknown(self, known: Iterable[str]) -> dict[str, int]:
        """Return the counts of the gold labels that are not in `known`, the most frequent first."""
        names = {*known}
        return {label: count for label, count in self.gold.most_common() if label not in names}


def frequent_labels(labels: Iterable[str], support: Mapping[str, int]) -> list[str]:
    """Return the `MAX_LABELS` labels with the largest support, in the order of `labels`."""
    labels = list(labels)
    frequent = set(sorted(labels, key=lambda label: -support[label])[:MAX_LABELS])
    return [label for label in labels if label in frequent]


def limit_labels(scores: dict[str, Any]) -> dict[str, Any]:
    """Limit the tables in the JSON value of scores to `MAX_LABELS` labels."""
    if "per_label" not in scores:
        return scores
    per_label = scores["per_label"]
    labels = frequent_labels(per_label, {name: score["support"] for name, score in per_label.items()})
    unknown = dict(islice(scores["unknown_labels"].items(), MAX_LABELS))
    return scores | {"per_label": {name: per_label[name] for name in labels}, "unknown_labels": unknown}


def macro_f1(scores: Mapping[str, LabelScore]) -> float:
    """Return the mean F1 of all labels."""
    return ratio_or_zero(sum(score.f1 for score in scores.values()), len(scores))


def weighted_f1(scores: Mapping[str, LabelScore]) -> float:
    """Return the mean F1 of all labels, weighted by `support`."""
    weighted = sum(score.f1 * score.support for score in scores.values())
    return ratio_or_zero(weighted, sum(score.support for score in scores.values()))
