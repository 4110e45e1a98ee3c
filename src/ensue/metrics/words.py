"""Scores of vectors of words and texts: correlations with judged similarities, and analogies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.metrics.scores import Scores


@dataclass(frozen=True)
class TextSimilarityScores(Scores):
    """Pearson's r and Spearman's ρ between cosines of `pairs` pairs of texts and similarities that people gave them."""

    spearman: float
    pearson: float
    pairs: int

    def summary(self) -> str:
        return f"Spearman {self.spearman:.4f}, Pearson {self.pearson:.4f}, {self.pairs:,} pairs"


def pearson(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Pearson's correlation of two rows of numbers; 0 if one of them does not vary."""
    x, y = a - a.mean(), b - b.mean()
    norm = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / norm) if norm else 0.0


@dataclass(frozen=True)
class SimilarityScores(Scores):
    """Spearman's ρ between the cosines of pairs of words and the similarities that people gave them.

    It is that of the `covered` pairs, of which both words have a vector, out of `pairs`. Of several files, `files` has
    the scores of each, and `spearman` is their mean.
    """

    spearman: float
    covered: int
    pairs: int
    files: dict[str, SimilarityScores] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"spearman": self.spearman, "covered": self.covered, "pairs": self.pairs}
        return found | ({"files": {name: part.as_json() for name, part in self.files.items()}} if self.files else {})

    def summary(self) -> str:
        return f"Spearman {self.spearman:.4f}, {self.covered:,} of {self.pairs:,} pairs"


@dataclass(frozen=True)
class AnalogyScores(Scores):
    """How many of the `covered` questions (all four words have a vector) are `right`; also by section."""

    in_json = ("accuracy", "right", "covered", "questions")
    right: int
    covered: int
    questions: int
    sections: dict[str, AnalogyScores] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """The share of the covered questions that are right; 0 if there are none."""
        return self.right / self.covered if self.covered else 0.0

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | (
            {"sections": {n: part.as_json() for n, part in self.sections.items()}} if self.sections else {}
        )

    def summary(self) -> str:
        return f"accuracy {self.accuracy:.4f}, {self.covered:,} of {self.questions:,} questions"


def spearman(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Spearman's rank correlation of two rows of numbers; ties have mean ranks. 0 if one row does not vary."""
    return pearson(_ranks(a), _ranks(b))


def _ranks(values: NDArray[np.floating]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean: NDArray[np.float64] = np.cumsum(counts) - (counts - 1) / 2
    return mean[inverse]
