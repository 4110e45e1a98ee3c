"""Models that give a vector for each text: how it comes from those of tokens, and how similar two texts are."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ensue.data.files import Location, one_location
from ensue.data.judgments import JudgedTexts, read_judged_texts
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

    def text_similarity(self, location: Location, *, encoding: str = "utf-8") -> TextSimilarityScores:
        """How cosines of pairs of texts (file, folder, glob) agree with people's similarities (`data.judged_texts`)."""
        location = one_location(location, "the pairs")
        return self.similarity_scores(read_judged_texts(location, encoding=encoding))

    def similarity_scores(self, pairs: JudgedTexts) -> TextSimilarityScores:
        """How the cosines of pairs of texts agree with the similarities that people gave them."""
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


SEARCHED, COMPARED = 16_384, 2048
"""The vectors that a search, and the search for pairs, read at once."""
MAX_PAIRS = 1 << 22
Stored = NDArray[np.float32] | NDArray[np.float16]
"""Vectors (N, d), perhaps in a file that is mapped."""


def highest_cosines(vectors: Stored, queries: Vectors, count: int) -> tuple[Vectors, NDArray[np.int64]]:
    """The highest cosines of each of Q queries with the vectors, (Q, K), falling, and the rows of these.

    Every vector is compared; the first of equal ones comes first. Raises EnsueError for one that is not finite.
    """
    asked, lengths = _block(queries, range(len(queries)))
    units: Vectors = asked / lengths[:, None]
    best, rows = np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
    for start in range(0, len(vectors), SEARCHED):
        block, norms = _block(vectors[start : start + SEARCHED], range(start, len(vectors)))
        found: Vectors = (units @ block.T) / norms
        own = np.broadcast_to(np.arange(start, start + len(block)), found.shape)
        if found.shape[1] > count:
            places = np.sort(_highest(found, count), axis=1)
            found, own = np.take_along_axis(found, places, 1), np.take_along_axis(own, places, 1)
        best, rows = np.hstack([best, found]), np.hstack([rows, own])
        places = np.argsort(-best, axis=1, kind="stable")[:, :count]
        best, rows = np.take_along_axis(best, places, 1), np.take_along_axis(rows, places, 1)
    return best, rows


def _block(vectors: Stored, numbers: Sequence[int]) -> tuple[Vectors, Vectors]:
    """Return vectors in float32, and their lengths; infinity for zeros.

    Raises EnsueError with the number, from 0 in `numbers`, of a vector that is not finite.
    """
    block = np.asarray(vectors, np.float32)
    norms: Vectors = np.sqrt(np.einsum("nd,nd->n", block, block))
    if not np.isfinite(norms).all():
        raise EnsueError(
            f"vector {numbers[int(np.isfinite(norms).argmin())] + 1:,} is not finite, or longer than 32 bits hold"
        )
    norms[norms == 0] = np.inf
    return block, norms


def _highest(found: Vectors, count: int) -> NDArray[np.int64]:
    """The places of the highest values of each row; of equal ones at the edge the first."""
    edge = -np.partition(-found, count - 1, axis=1)[:, count - 1 : count]
    above, equal = found > edge, found == edge
    kept = above | (equal & (np.cumsum(equal, axis=1) <= count - above.sum(1, keepdims=True)))
    return np.nonzero(kept)[1].reshape(len(found), count)


def near_duplicates(vectors: Stored, threshold: float) -> Iterator[tuple[int, int, float]]:
    """Yield the pairs of rows whose cosine is `threshold` at least, up to rounding, each once, with the cosine.

    All rows are compared. A row that equals an earlier one is paired with the first of its equals alone, so that n
    equal rows are n - 1 pairs. Raises EnsueError for a vector that is not finite, and for more than `MAX_PAIRS` pairs.
    """
    first: dict[bytes, int] = {}
    rows, count = [], 0
    for row, vector in enumerate(vectors):
        equal = first.setdefault(hashlib.blake2b(vector.tobytes(), digest_size=16).digest(), row)
        if equal == row:
            rows.append(row)
        elif np.any(vector) and threshold <= 1 + 1e-6:
            yield equal, row, 1.0

    def block(start: int) -> Vectors:
        numbers = rows[start : start + COMPARED]
        found, norms = _block(vectors[numbers], numbers)
        return found / norms[:, None]

    for start in range(0, len(rows), COMPARED):
        own = block(start)
        for other in range(start, len(rows), COMPARED):
            cosines = own @ (own if other == start else block(other)).T
            pairs = np.argwhere(cosines >= threshold - 1e-6)
            pairs = pairs[start + pairs[:, 0] < other + pairs[:, 1]]
            count += len(pairs)
            if count > MAX_PAIRS:
                raise EnsueError(
                    f"more than {MAX_PAIRS:,} pairs are as similar as {threshold:g}; expected a higher bound"
                )
            for row, place in pairs.tolist():
                yield rows[start + row], rows[other + place], float(cosines[row, place])
