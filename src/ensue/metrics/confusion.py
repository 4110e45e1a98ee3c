"""Precision, recall and F1 of labels, from counts of right and predicted ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from operator import add
from typing import Any, Generic, TypeVar

from ensue.metrics.scores import ItemRows, Score, ScoredItems, Scores, f1, f1_of, ratio, share

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
        """From counts; a share of nothing is 0, as in conlleval."""
        f1 = f1_of(correct, support, predicted)
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


ScoresT = TypeVar("ScoresT", bound=LabelsScores)


class Tally(ABC, Generic[ScoresT]):
    """Counts of right and predicted labels. They are added item by item, so there may be any number of items."""

    def __init__(self, f1_name: str | None = None) -> None:
        self.item_scores: dict[str, Score] = {"accuracy": ratio(0, 1)} | ({f1_name: f1(2, 3, 4)} if f1_name else {})
        self.size, self.sums = 0, (0, 0, 0, 0, 0)
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.correct: Counter[str] = Counter()
        self.gold: Counter[str] = Counter()
        self.predicted: Counter[str] = Counter()

    @abstractmethod
    def add(self, *args: Any, **kwargs: Any) -> tuple[int, ...]:
        """Counts an item. Its row: right and all predictions; labels found, right and predicted."""

    @abstractmethod
    def scores(self) -> ScoresT:
        """The scores of all items so far."""

    def scores_of(self, answers: Iterable[tuple[Any, ...]]) -> ScoresT:
        """The scores, in constant memory. Each answer has the arguments of `add`."""
        for answer in answers:
            self.add(*answer)
        return self.scores()

    def items_of(self, answers: Iterable[tuple[Any, ...]], unit: str) -> ScoredItems:
        """The items of these scores, for a test of differences."""
        return ItemRows(self.add(*answer) for answer in answers).scored(unit, self.item_scores)

    def _counted(
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
        """The share of predictions that are right."""
        return share(*self.sums[:2])

    @property
    def per_label(self) -> dict[str, LabelScore]:
        """The scores of the labels that were right or predicted at least once, sorted by label."""
        labels = sorted(self.gold.keys() | self.predicted)
        return {name: LabelScore.of(self.correct[name], self.gold[name], self.predicted[name]) for name in labels}

    @property
    def overall(self) -> LabelScore:
        """The scores of all labels together: the micro average."""
        return LabelScore.of(*self.sums[2:])

    def unknown(self, known: Iterable[str]) -> dict[str, int]:
        """The counts of right labels that are not known, the most frequent first."""
        names = {*known}
        return {label: count for label, count in self.gold.most_common() if label not in names}


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
