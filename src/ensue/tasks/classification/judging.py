"""The scores of a classifier from right labels, said labels and probabilities, of texts or of frames."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.metrics.classification import ClassificationScores, ClassificationTally
from ensue.metrics.comparison import ItemRows, ScoredItems, f1, ratio
from ensue.text.classes import Classes


class Judged(NamedTuple):
    """The labels that are right, those that the model says, and the probabilities of all (K,)."""

    right: Collection[str]
    said: Collection[str]
    probabilities: NDArray[np.floating[Any]]


def scores_of(labels: Classes, answers: Iterable[Judged]) -> ClassificationScores:
    """The scores, in constant memory."""
    tally = ClassificationTally(labels.names, multiple=labels.multiple)
    for right, said, probabilities in answers:
        tally.add(right, probabilities, said)
    return tally.scores()


def items_of(labels: Classes, answers: Iterable[Judged], unit: str) -> ScoredItems:
    """The same scores by their items, for a test of differences."""
    rows = ItemRows()
    for answer in answers:
        right, said = set(answer.right), set(answer.said)
        rows.append((right == said, 1, len(right & said), len(right), len(said)))
    accuracy = {"accuracy": ratio(0, 1)}
    return rows.scored(unit, accuracy | ({"micro_f1": f1(2, 3, 4)} if labels.multiple else {}))
