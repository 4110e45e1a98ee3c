"""Scores of classification, for texts with one label and with several, and the best threshold for several labels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.metrics.confusion import (
    MOST_LABELS,
    LabelsScores,
    Tally,
    macro_f1,
    most_supported,
    weighted_f1,
)
from ensue.metrics.scores import card_columns, share

BINS = 15
MOST_UNKNOWN = 50
"""The most unknown labels in the confusion matrix, since data of another kind may have thousands."""
_EDGES = np.arange(1, BINS) / BINS


@dataclass(frozen=True)
class ClassificationScores(LabelsScores):
    """The scores of a classifier, and counts.

    `accuracy` is the share of texts with exactly the right labels. `weighted_f1` is a mean over the labels of
    `per_label`, and `micro_f1` is over all labels together. `confusion[i][j]` counts the texts with `labels[i]` for
    which `labels[j]` was predicted; it is None if a text may have several labels. `labels` ends with the most frequent
    labels that the model does not have. If the model has more than 100 labels, `labels` are the 100 that are right most
    often.
    """

    in_json = (
        "accuracy", "macro_f1", "examples", "per_label", "weighted_f1", "micro_f1", "calibration_error", "labels",
        "confusion", "unknown_labels",
    )  # fmt: skip
    on_card = card_columns(".2%", "accuracy", "macro_f1", "weighted_f1", "calibration_error")
    weighted_f1: float
    micro_f1: float
    examples: int
    labels: list[str]
    confusion: list[list[int]] | None
    calibration_error: float

    @property
    def headline(self) -> tuple[str, float]:
        return ("micro F1", self.micro_f1) if self.confusion is None else ("macro F1", self.macro_f1)


class ClassificationTally(Tally[ClassificationScores]):
    """Counts of texts.

    `labels` are the model's K labels in the order of its probabilities. With `multiple`, a text has any number of
    labels, also none; without, exactly one.

    The calibration error is the expected one (Naeini et al. 2015; Guo et al. 2017), over 15 bins of equal width:
    `Σ_b n_b / n |share that is right in b − mean probability in b|`. Without `multiple`, the highest probability of
    each text counts; with it, the probability of every label of every text.
    """

    def __init__(self, labels: Sequence[str], *, multiple: bool = False) -> None:
        assert len(set(labels)) == len(labels), "the model has a label twice"
        super().__init__("micro_f1" if multiple else None)
        self.labels, self.multiple, self._reliability = list(labels), multiple, _Reliability()

    def add(
        self, gold: Collection[str], probabilities: NDArray[np.floating[Any]], predicted: Collection[str]
    ) -> tuple[int, ...]:
        """Counts one text: its right labels, known or not, the probabilities (K,), and the predicted labels."""
        assert not isinstance(gold, str), f'labels come as a collection, not as "{gold}"'
        assert not isinstance(predicted, str), f'labels come as a collection, not as "{predicted}"'
        assert len(probabilities) == len(self.labels), f"{len(probabilities)} probabilities, {len(self.labels)} labels"
        right, said = set(gold), set(predicted)
        if self.multiple:
            self._reliability.add(probabilities, np.array([label in right for label in self.labels]))
        else:
            assert len(right) == len(said) == 1, f"one label each, not {sorted(right)} and {sorted(said)}"
            self.pairs[min(right), min(said)] += 1
            top = int(np.argmax(probabilities))
            self._reliability.add(probabilities[top : top + 1], np.array([self.labels[top] in right]))
        return self._counted(right == said, 1, right & said, right, said)

    def scores(self) -> ClassificationScores:
        per_label, unknown = self.per_label, self.unknown(self.labels)
        labels = [*self.labels, *list(unknown)[:MOST_UNKNOWN]]
        if len(self.labels) > MOST_LABELS and not self.multiple:
            labels = most_supported(labels, self.gold)
        return ClassificationScores(
            accuracy=self.accuracy,
            macro_f1=macro_f1(per_label),
            weighted_f1=weighted_f1(per_label),
            micro_f1=self.overall.f1,
            examples=self.size,
            per_label=per_label,
            labels=labels,
            confusion=None if self.multiple else [[self.pairs[gold, said] for said in labels] for gold in labels],
            calibration_error=self._reliability.error(),
            unknown_labels=unknown,
        )


class _Reliability:
    """Sums of probabilities and counts of right labels by bin; bin b has the p with b / 15 < p ≤ (b + 1) / 15."""

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

    Every cut between two different probabilities is tried. The threshold is the middle of the best cut, and of the
    highest one if several are best. If no label is right, it is 0.5.
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


def best_temperature(gold: NDArray[np.bool_], probabilities: NDArray[np.floating[Any]], *, multiple: bool) -> float:
    """The temperature of the logits at which N texts with these of K labels (N, K) have the least surprisal (Guo et al.
    2017), from 0.1 to 10. It is 1 where no prediction is wrong, which says nothing of how sure a model may be.

    The probabilities are those at temperature 1. The surprisal is convex in the inverse of the temperature.
    """
    assert gold.shape == probabilities.shape, f"{gold.shape} labels, {probabilities.shape} probabilities"
    shares = np.clip(probabilities.astype(np.float64), 1e-12, 1 - 1e-7)
    if multiple:
        logits = np.log(shares / (1 - shares))
        is_right = (logits >= 0) == gold
    else:
        known = gold.any(1)
        logits, gold = np.log(shares[known]), gold[known]
        is_right = logits.argmax(1) == gold.argmax(1)
        logits -= logits.max(1, keepdims=True)
    if is_right.all():
        return 1.0

    def slope(inverse: float) -> float:
        """The derivative of the surprisal with respect to the inverse of the temperature."""
        scaled = inverse * logits
        if multiple:
            expected = 1 / (1 + np.exp(-scaled))
        else:
            expected = np.exp(scaled, out=scaled)
            expected /= expected.sum(1, keepdims=True)
        return float(((expected - gold) * logits).sum())

    low, high = 0.1, 10.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return 2 / (low + high)
