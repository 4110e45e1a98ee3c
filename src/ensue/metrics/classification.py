"""Scores of classification, for texts of one label and of several; and the threshold that several labels need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.metrics.confusion import LabelScore, label_scores, macro_f1, overall, share, weighted_f1

BINS = 15
MOST_UNKNOWN = 50
"""Of more labels that the model cannot give, these are in the confusion matrix: data of another kind have thousands."""
_EDGES = np.arange(1, BINS) / BINS


@dataclass(frozen=True)
class ClassificationScores:
    """Shares from 0 to 1, and counts.

    `accuracy` counts texts whose labels are all right and none too many. `macro_f1` and `weighted_f1` are means over
    the labels of `per_label`, those that were right or said at least once; `micro_f1` counts all labels as one.
    `confusion[i][j]` counts texts of `labels[i]` that were said to be `labels[j]`; None where a text may have several
    labels. `unknown_labels` counts the right answers that the model cannot give; `labels` ends with the most frequent
    of them.
    """

    accuracy: float
    macro_f1: float
    weighted_f1: float
    micro_f1: float
    examples: int
    per_label: dict[str, LabelScore]
    labels: list[str]
    confusion: list[list[int]] | None
    calibration_error: float
    unknown_labels: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """The keys of `evaluate --json`."""
        return {
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "examples": self.examples,
            "per_label": {label: asdict(score) for label, score in self.per_label.items()},
            "weighted_f1": self.weighted_f1,
            "micro_f1": self.micro_f1,
            "calibration_error": self.calibration_error,
            "labels": self.labels,
            "confusion": self.confusion,
            "unknown_labels": self.unknown_labels,
        }

    def summary(self) -> str:
        name, f1 = ("micro F1", self.micro_f1) if self.confusion is None else ("macro F1", self.macro_f1)
        return f"accuracy {100 * self.accuracy:.2f} %, {name} {100 * f1:.2f}"


class ClassificationTally:
    """Counts texts one by one; holds counts alone.

    `labels` are those of the model, K, in the order of its probabilities. With `multiple`, a text has any number of
    labels, none too; without, exactly one.

    The calibration error is the expected one (Naeini et al. 2015; Guo et al. 2017): probabilities are put in 15 bins
    of equal width, and `Σ_b n_b / n |share that came true in b − mean probability in b|` is taken. Without `multiple`,
    what counts is the highest probability of each text and whether that label is right; with it, the probability of
    every label of every text and whether the text has it.
    """

    def __init__(self, labels: Sequence[str], *, multiple: bool = False) -> None:
        assert len(set(labels)) == len(labels), "a label stands twice among the model's"
        self.labels = list(labels)
        self.multiple = multiple
        self._examples = 0
        self._exact = 0
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._correct: Counter[str] = Counter()
        self._gold: Counter[str] = Counter()
        self._predicted: Counter[str] = Counter()
        self._reliability = _Reliability()

    def add(self, gold: Collection[str], probabilities: NDArray[np.floating[Any]], predicted: Collection[str]) -> None:
        """One text: the right labels, known or not, the probabilities (K,), and the labels that the model gives."""
        assert not isinstance(gold, str), f'labels come as a collection, not as "{gold}"'
        assert not isinstance(predicted, str), f'labels come as a collection, not as "{predicted}"'
        assert len(probabilities) == len(self.labels), f"{len(probabilities)} probabilities, {len(self.labels)} labels"
        right, said = set(gold), set(predicted)
        self._examples += 1
        self._exact += right == said
        self._gold.update(right)
        self._predicted.update(said)
        self._correct.update(right & said)
        if self.multiple:
            self._reliability.add(probabilities, np.array([label in right for label in self.labels]))
            return
        assert len(right) == len(said) == 1, f"one label each, not {sorted(right)} and {sorted(said)}"
        self._pairs[min(right), min(said)] += 1
        top = int(np.argmax(probabilities))
        self._reliability.add(probabilities[top : top + 1], np.array([self.labels[top] in right]))

    def scores(self) -> ClassificationScores:
        per_label = label_scores(self._correct, self._gold, self._predicted)
        unknown = {label: count for label, count in self._gold.most_common() if label not in set(self.labels)}
        labels = [*self.labels, *list(unknown)[:MOST_UNKNOWN]]
        return ClassificationScores(
            accuracy=share(self._exact, self._examples),
            macro_f1=macro_f1(per_label),
            weighted_f1=weighted_f1(per_label),
            micro_f1=overall(per_label, self._correct).f1,
            examples=self._examples,
            per_label=per_label,
            labels=labels,
            confusion=None if self.multiple else [[self._pairs[gold, said] for said in labels] for gold in labels],
            calibration_error=self._reliability.error(),
            unknown_labels=unknown,
        )


class _Reliability:
    """Probabilities and what came true, by bin; bin b holds the probabilities p with b / 15 < p ≤ (b + 1) / 15."""

    def __init__(self) -> None:
        self._count = 0
        self._probability = np.zeros(BINS)
        self._true = np.zeros(BINS)

    def add(self, probabilities: NDArray[np.floating[Any]], came_true: NDArray[np.bool_]) -> None:
        bins = np.searchsorted(_EDGES, probabilities, side="left")
        self._count += len(bins)
        self._probability += np.bincount(bins, probabilities, BINS)
        self._true += np.bincount(bins, came_true, BINS)

    def error(self) -> float:
        return share(float(np.abs(self._true - self._probability).sum()), self._count)


def best_threshold(gold: NDArray[np.bool_], probabilities: NDArray[np.floating[Any]]) -> float:
    """The threshold for all K labels of N texts (N, K) at which `probability >= threshold` has the highest micro F1.

    Exact: the probabilities are sorted once and every cut between two different ones is tried. The threshold lies in
    the middle of the best cut, the highest cut if several are best. Without any right label no cut says anything: 0.5.
    """
    assert gold.shape == probabilities.shape, f"{gold.shape} labels, {probabilities.shape} probabilities"
    order = np.argsort(-probabilities, axis=None, kind="stable")
    ranked, right = probabilities.reshape(-1)[order], gold.reshape(-1)[order]
    if not right.any():
        return 0.5
    below = np.append(ranked[1:], ranked.dtype.type(-1))
    f1 = np.where(ranked > below, 2 * np.cumsum(right) / (np.arange(1, len(right) + 1) + right.sum()), -1.0)
    best = int(np.argmax(f1))
    lower = max(below[best], ranked.dtype.type(0))
    middle = (ranked[best] + lower) / 2
    return float(middle if middle > lower else ranked[best])
