"""Models that give a vector for each text: how it comes from those of tokens, and how similar two texts are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ensue.arguments import check_path
from ensue.data.judgments import read_judged_texts
from ensue.errors import EnsueError, nearest
from ensue.metrics.words import TextSimilarityScores, pearson, spearman
from ensue.tasks.contract.pipeline import Pipeline


class TextVectors(Pipeline):
    """A model with `embed`."""

    @abstractmethod
    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """A vector for each text, (N, d)."""

    def similarity(self, first: str, second: str) -> float:
        """The cosine of the vectors of two texts; 0 if one of them is zeros."""
        return float(cosines(*self.embed([first, second])[:, None])[0])

    def text_similarity(self, location: str | Path, *, encoding: str = "utf-8") -> TextSimilarityScores:
        """How the cosines of pairs of texts agree with the similarities that people gave them: a file, folder or glob
        (`data.judged_texts`).
        """
        check_path("the pairs", location)
        pairs = read_judged_texts(location, encoding=encoding)
        vectors = self.embed([*pairs.first, *pairs.second])
        found, judged = cosines(*np.split(vectors, 2)), np.array(pairs.scores)
        return TextSimilarityScores(spearman(found, judged), pearson(found, judged), len(judged))


def cosines(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float64]:
    """The cosine of each row of one matrix with that of the other, (N,)."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    found: NDArray[np.float64] = (a * b).sum(1) / np.maximum(norms, 1e-30)
    return found


Vectors = NDArray[np.float32]
RealT = TypeVar("RealT", bound="np.floating[Any]")
POOLINGS: dict[str, Callable[[Vectors], Vectors]] = {
    "mean": lambda vectors: vectors.mean(-2),
    "first": lambda vectors: vectors[..., 0, :],
    "last": lambda vectors: vectors[..., -1, :],
    "max": lambda vectors: vectors.max(-2),
}
"""From vectors (..., T, d), of one token at least, to one (..., d)."""


def pooling_of(name: str) -> Callable[[Vectors], Vectors]:
    """The pooling of this name. Raises EnsueError if there is none."""
    if name not in POOLINGS:
        raise EnsueError(f'no pooling "{name}"{nearest(name, POOLINGS)}; known: {", ".join(POOLINGS)}')
    return POOLINGS[name]


def unit_vectors(vectors: NDArray[RealT], *, least: float = 0.0) -> NDArray[RealT]:
    """The vectors (..., d) with length 1; zeros for those that are not longer than `least`."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    units: NDArray[RealT] = (vectors / np.where(norms > least, norms, np.inf)).astype(vectors.dtype)
    return units
