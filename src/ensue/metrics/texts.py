"""Scores of vectors of texts: correlations with the similarities that people gave to pairs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TextSimilarityScores:
    """Pearson's r and Spearman's ρ between the cosines of `pairs` pairs of texts and the similarities that people gave
    them.
    """

    spearman: float
    pearson: float
    pairs: int

    def as_json(self) -> dict[str, Any]:
        """The scores as JSON values by name."""
        return asdict(self)

    def summary(self) -> str:
        """The scores in one line."""
        return f"Spearman {self.spearman:.4f}, Pearson {self.pearson:.4f}, {self.pairs:,} pairs"


def pearson(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Pearson's correlation of two rows of numbers; 0 if one of them does not vary."""
    x, y = a - a.mean(), b - b.mean()
    norm = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / norm) if norm else 0.0
