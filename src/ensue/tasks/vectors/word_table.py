"""Words with their vectors: cosines, neighbors, analogies, and scores of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.judgments import Analogies, Questions, Similarities
from ensue.errors import DataError
from ensue.inspection.notebook import Answers
from ensue.metrics.scores import ItemRows, Numbers, ScoredItems, ratio
from ensue.metrics.words import AnalogyScores, SimilarityScores, spearman
from ensue.stored import Copyable
from ensue.tasks.vectors.text_vectors import unit_vectors

QUESTIONS = 256
"""Analogies that are answered at once."""


class Neighbor(NamedTuple):
    """A word and its cosine with what was asked for."""

    word: str
    similarity: float

    def __repr__(self) -> str:
        return f"{self.word!r} {self.similarity:.4f}"


class WordTable(Copyable):
    """Words, also in lower case, and `vectors` (V, d). `outside` gives a vector for another word, or None."""

    def __init__(
        self,
        words: Sequence[str],
        vectors: NDArray[np.float32],
        outside: Callable[[str], NDArray[np.float32] | None] | None = None,
    ) -> None:
        self.words, self.vectors, self.outside = tuple(words), vectors, outside
        self.places = {word: place for place, word in enumerate(self.words)}

    @cached_property
    def units(self) -> NDArray[np.float32]:
        """The vectors (V, d), of length 1."""
        return unit_vectors(self.vectors)

    def place(self, word: str) -> int | None:
        """The word's number; None if it has none."""
        found = self.places.get(word)
        return self.places.get(word.lower()) if found is None else found

    def find(self, word: str) -> NDArray[np.float32] | None:
        """The word's vector (d,); None if it has none."""
        place = self.place(word)
        if place is None:
            return self.outside(word) if self.outside else None
        vector: NDArray[np.float32] = self.vectors[place]
        return vector

    def neighbors(self, vector: NDArray[np.float32], count: int, without: Sequence[str] = ()) -> list[Neighbor]:
        """The words of the highest cosine with a vector, the highest first."""
        cosines = self.units @ unit_vectors(vector[None])[0]
        cosines[[place for word in without if (place := self.place(word)) is not None]] = -np.inf
        best = np.argsort(-cosines, kind="stable")[:count]
        return Answers(Neighbor(self.words[n], float(cosines[n])) for n in best if np.isfinite(cosines[n]))

    def answers(self, questions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The word d for each row (a, b, c): of all others the one with the highest cosine with b - a + c, of unit
        vectors (3CosAdd; Mikolov et al. 2013, Levy & Goldberg 2014).
        """
        found = np.empty(len(questions), np.int64)
        for start in range(0, len(questions), QUESTIONS):
            asked = questions[start : start + QUESTIONS]
            a, b, c = (self.units[column] for column in asked.T)
            cosines = (b - a + c) @ self.units.T
            np.put_along_axis(cosines, asked, -np.inf, axis=1)
            found[start : start + QUESTIONS] = cosines.argmax(1)
        return found

    def check(self, questions: Sequence[Questions], location: str) -> None:
        """Raises DataError for files of both kinds, and if no question is covered."""
        kinds = {type(part): part.name for part in questions}
        if len(kinds) > 1:
            pairs, analogies = kinds[Similarities], kinds[Analogies]
            raise DataError(f"{pairs} has pairs and {analogies} analogies; score them one by one", location)
        if not any(self._covers(part, row) for part in questions for row in part.rows()):
            raise DataError("no word of these questions has a vector; are they in another language or case?", location)

    def score(self, questions: Sequence[Questions], location: str) -> SimilarityScores | AnalogyScores:
        """The scores on the questions of a location. Raises as `check` does."""
        self.check(questions, location)
        similar = [part for part in questions if isinstance(part, Similarities)]
        return (
            self._similar(similar) if similar else self._analogous([p for p in questions if isinstance(p, Analogies)])
        )

    def scored_items(self, questions: Sequence[Questions], location: str) -> ScoredItems | None:
        """The items of the scores on the questions of a location: pairs, or analogies. None for several files of pairs,
        whose score is a mean. Raises as `check` does.
        """
        self.check(questions, location)
        similar = [part for part in questions if isinstance(part, Similarities)]
        if similar:
            rows = zip(self._cosines(similar[0]), similar[0].scores, strict=True)
            return ItemRows(rows).scored("pairs", {"spearman": _spearman_of_samples}) if len(similar) == 1 else None
        sections = (part for file in questions if isinstance(file, Analogies) for part in file.sections.values())
        answers = ItemRows(row for part in sections for row in zip(*self._right(part), strict=True))
        return answers.scored("analogies", {"accuracy": ratio(1, 0)})

    def _covers(self, part: Questions, words: Sequence[str]) -> bool:
        """Whether the words can be scored. The answer to an analogy is one of the table's words, as are the others."""
        look_up = self.find if isinstance(part, Similarities) else self.place
        return all(look_up(word) is not None for word in words)

    def _similar(self, files: Sequence[Similarities]) -> SimilarityScores:
        found = {part.name: self._similarity(part) for part in files}
        if len(found) == 1:
            return next(iter(found.values()))
        mean = sum(part.spearman for part in found.values()) / len(found)
        covered, pairs = np.sum([(part.covered, part.pairs) for part in found.values()], axis=0).tolist()
        return SimilarityScores(mean, covered, pairs, found)

    def _similarity(self, part: Similarities) -> SimilarityScores:
        cosines = self._cosines(part)
        covered = ~np.isnan(cosines)
        rho = spearman(cosines[covered], np.array(part.scores)[covered]) if covered.any() else 0.0
        return SimilarityScores(rho, int(covered.sum()), len(part.pairs))

    def _cosines(self, part: Similarities) -> NDArray[np.float64]:
        """The cosine of each pair; NaN where a word has no vector."""
        cosines = np.full(len(part.pairs), np.nan)
        for number, (first, second) in enumerate(part.pairs):
            a, b = self.find(first), self.find(second)
            if a is not None and b is not None:
                one, other = unit_vectors(np.stack([a, b]))
                cosines[number] = float(one @ other)
        return cosines

    def _analogous(self, files: Sequence[Analogies]) -> AnalogyScores:
        sections: dict[str, AnalogyScores] = {}
        for name, questions in (item for part in files for item in part.sections.items()):
            is_covered, is_right = self._right(questions)
            sections[name] = AnalogyScores(int(is_right.sum()), int(is_covered.sum()), len(questions))
        right, covered, asked = np.sum([(p.right, p.covered, p.questions) for p in sections.values()], axis=0).tolist()
        return AnalogyScores(right, covered, asked, sections)

    def _right(self, questions: Sequence[Sequence[str]]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """For each analogy whether it is covered, and whether it is answered rightly."""
        rows = [[self.place(word) for word in question] for question in questions]
        is_covered = np.array([None not in row for row in rows], bool)
        known = np.array([row for row in rows if None not in row], np.int64).reshape(-1, 4)
        is_right = np.zeros(len(rows), bool)
        is_right[is_covered] = self.answers(known[:, :3]) == known[:, 3]
        return is_covered, is_right


def _spearman_of_samples(rows: Numbers, counts: NDArray[np.int64]) -> Numbers:
    """The rank correlation of the pairs (cosine, judged) of each sample that have a cosine."""
    covered = ~np.isnan(rows[:, 0])
    samples = (rows[covered].repeat(count[covered], axis=0) for count in counts)
    return np.array([spearman(sample[:, 0], sample[:, 1]) if len(sample) else 0.0 for sample in samples])
