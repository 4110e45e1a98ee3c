"""Scores of vectors of texts: correlations with the similarities that people gave to pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ensue.metrics.scores import Scores


@dataclass(frozen=True)
class TextSimilarityScores(Scores):
    """Pearson's r and Spearman's ρ between the cosines of `pairs` pairs of texts and the similarities that people gave
    them.
    """

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
