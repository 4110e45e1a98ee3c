"""Scores of single-label and multi-label classification, and calibration of thresholds and temperatures."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.metrics.confusion import MAX_LABELS, LabelsScores, Tally, frequent_labels, macro_f1, weighted_f1
from ensue.metrics.scores import card_columns, ratio_or_zero

NUM_BINS = 15
MAX_UNKNOWN_LABELS = 50
"""The maximum number of unknown labels in the confusion matrix. Unsuitable data may have thousands."""
_BIN_EDGES = np.arange(1, NUM_BINS) / NUM_BINS


@dataclass(frozen=True)
class ClassificationScores(LabelsScores):
    """Scores and counts of a classifier.

    `accuracy` is the share of texts whose predicted labels are exactly the gold labels. `weighted_f1` is a weighted
    mean over `per_label`; `micro_f1` is computed from the counts of all labels. `confusion[i][j]` is the number of
    texts with the gold label `labels[i]` and the prediction `labels[j]`; it is None for multi-label data. `labels`
    are the labels of the model and the most frequent unknown labels. If the model has more than 100 labels, the
    confusion matrix has the 100 most frequent labels.
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
    standard_error: float = 0.0
    """The standard error of `accuracy` as an estimate for unseen texts, from cross-validation; otherwise 0."""

    def summary(self) -> str:
        error = f" ± {100 * self.standard_error:.2f}" if self.standard_error else ""
        return super().summary().replace(" %", f"{error} %", 1)

    @property
    def headline(self) -> tuple[str, float]:
        return ("micro F1", self.micro_f1) if self.confusion is None else ("macro F1", self.macro_f1)


class ClassificationTally(Tally[ClassificationScores]):
    """A counter of texts. `labels` are the K labels of the model, in the order of its probabilities.

    With `multiple`, a text has any number of labels, otherwise exactly one label. The expected calibration error
    (Naeini et al. 2015; Guo et al. 2017) has 15 bins of equal width: `Σ_b n_b / n |share of correct labels in b − mean
    probability in b|`. The bins contain the highest probability of each text, or with `multiple` all probabilities.
    """

    def __init__(self, labels: Sequence[str], *, multiple: bool = False) -> None:
        assert len(set(labels)) == len(labels), "the model has a label twice"
        super().__init__("micro_f1" if multiple else None)
        self.labels, self.multiple, self._reliability = list(labels), multiple, _Reliability()

    def add(
        self, gold: Collection[str], probabilities: NDArray[np.floating[Any]], predicted: Collection[str]
    ) -> tuple[int, ...]:
        """Count a text by its gold labels, which may be unknown, probabilities (K,), and predicted labels."""
        assert not isinstance(gold, str), f'labels must be a collection; found "{gold}"'
        assert not isinstance(predicted, str), f'labels must be a collection; found "{predicted}"'
        assert len(probabilities) == len(self.labels), f"{len(probabilities)} probabilities, {len(self.labels)} labels"
        correct, guesses = set(gold), set(predicted)
        if self.multiple:
            self._reliability.add(probabilities, np.array([label in correct for label in self.labels]))
        else:
            assert len(correct) == len(guesses) == 1, f"expected one label each: {sorted(correct)}, {sorted(guesses)}"
            self.pairs[min(correct), min(guesses)] += 1
            best = int(np.argmax(probabilities))
            self._reliability.add(probabilities[best : best + 1], np.array([self.labels[best] in correct]))
        return self._count(correct == guesses, 1, correct & guesses, correct, guesses)

    def scores(self) -> ClassificationScores:
        per_label, unknown = self.per_label, self.unknown(self.labels)
        labels = [*self.labels, *list(unknown)[:MAX_UNKNOWN_LABELS]]
        if len(self.labels) > MAX_LABELS and not self.multiple:
            labels = frequent_labels(labels, self.gold)
        return ClassificationScores(
            accuracy=self.accuracy, macro_f1=macro_f1(per_label), weighted_f1=weighted_f1(per_label),
            micro_f1=self.overall.f1, examples=self.size, per_label=per_label, labels=labels,
            confusion=None if self.multiple else [[self.pairs[gold, guess] for guess in labels] for gold in labels],
            calibration_error=self._reliability.error(), unknown_labels=unknown,
        )  # fmt: skip


class _Reliability:
    """Sums of probabilities and counts of correct labels in bins. Bin b is for b / 15 < p ≤ (b + 1) / 15."""

    def __init__(self) -> None:
        self._count = 0
        self._probability = np.zeros(NUM_BINS)
        self._true = np.zeros(NUM_BINS)

    def add(self, probabilities: NDArray[np.floating[Any]], is_right: NDArray[np.bool_]) -> None:
        bins = np.searchsorted(_BIN_EDGES, probabilities, side="left")
        self._count += len(bins)
        self._probability += np.bincount(bins, probabilities, NUM_BINS)
        self._true += np.bincount(bins, is_right, NUM_BINS)

    def error(self) -> float:
        return ratio_or_zero(float(np.abs(self._true - self._probability).sum()), self._count)


def best_threshold(gold: NDArray[np.bool_], probabilities: NDArray[np.floating[Any]]) -> float:
    """Return the decision threshold, common to all K labels, with the highest micro F1 on N texts (N, K).

    A label is predicted if `probability >= threshold`. The result is the midpoint of two neighboring probabilities, and
    the highest of several equally good midpoints; 0.5 if no text has a label.
    """
    assert gold.shape == probabilities.shape, f"{gold.shape} labels, {probabilities.shape} probabilities"
    if not gold.any():
        return 0.5
    thresholds, predicted, correct = count_by_threshold(probabilities.reshape(-1), gold.reshape(-1))
    best = int(np.argmax(2 * correct / (predicted + gold.sum())))
    lower, threshold = [*thresholds[best + 1 : best + 2], thresholds.dtype.type(0)][0], thresholds[best]
    middle = (threshold + lower) / 2
    return float(middle if middle > lower else threshold)


def count_by_threshold(
    probabilities: NDArray[np.floating[Any]], correct: NDArray[np.bool_]
) -> tuple[NDArray[np.floating[Any]], NDArray[np.int64], NDArray[np.int64]]:
    """Return the M distinct probabilities of N predictions, the highest first, and the number of predictions and of
    correct predictions with at least this probability, each (M,).
    """
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order]
    last = np.flatnonzero(np.diff(ranked, append=-1))
    return ranked[last], last + 1, np.cumsum(correct[order], dtype=np.int64)[last]


def best_temperature(gold: NDArray[np.bool_], probabilities: NDArray[np.floating[Any]], *, multiple: bool) -> float:
    """Return the temperature from 0.1 to 10 that minimizes the surprisal of N texts (N, K) (Guo et al. 2017).

    `probabilities` are computed at temperature 1. If no prediction is wrong, the result is 1, because the minimum would
    be at 0.1 for every model. Bisection finds the minimum, since the surprisal is convex in the inverse temperature.
    """
    assert gold.shape == probabilities.shape, f"{gold.shape} labels, {probabilities.shape} probabilities"
    clipped = np.clip(probabilities.astype(np.float64), 1e-12, 1 - 1e-7)  # keeps logits finite
    if multiple:
        logits = np.log(clipped / (1 - clipped))
        is_right = (logits >= 0) == gold
    else:
        known = gold.any(1)
        logits, gold = np.log(clipped[known]), gold[known]
        is_right = logits.argmax(1) == gold.argmax(1)
        logits -= logits.max(1, keepdims=True)
    if is_right.all():
        return 1.0

    def slope(inverse: float) -> float:
        """Return the derivative of the surprisal with respect to the inverse temperature."""
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
