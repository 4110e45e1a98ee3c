"""Minimal pairs: is the better of two texts more probable to a model? `data.corpus.pairs` reads the files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.corpus.pairs import MinimalPair, pair_files, read_pairs, stem
from ensue.data.files import Location, one_location
from ensue.errors import DataError, EnsueError, distinct_names
from ensue.inspection.notebook import html, scores_section
from ensue.runs.pictures import Lines
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.contract.token_scores import Surprisals, TokenScore, score_lines

PAIRS_AT_A_TIME = 256


class ScoredTexts(NamedTuple):
    """The ids of texts, and the nats (N,) of each; the lower, the more probable."""

    ids: Sequence[NDArray[np.int64]]
    nats: NDArray[np.float64]


class PairScore(NamedTuple):
    """The score of `pairs` pairs. `better` counts those whose better text is the more probable one, and half of the
    `ties`, whose texts are equally probable or have the same ids.
    """

    name: str
    pairs: int
    better: float
    ties: int = 0

    @property
    def accuracy(self) -> float:
        """The share of pairs whose better text is the more probable one. A tie counts a half."""
        return self.better / self.pairs

    def as_json(self) -> dict[str, Any]:
        """The keys of a row in `evaluate --json`."""
        return {"name": self.name, "pairs": self.pairs, "accuracy": self.accuracy, "ties": self.ties}


class MinimalPairScores(NamedTuple):
    """The scores of each file, and of all files together."""

    rows: tuple[PairScore, ...]

    @property
    def total(self) -> PairScore:
        """The score of all files together."""
        _, *numbers = zip(*self.rows, strict=True)
        return PairScore("total", *map(sum, numbers))

    def as_json(self) -> dict[str, Any]:
        """The keys of `evaluate --json`."""
        total = self.total
        files = [row.as_json() for row in self.rows]
        return {"accuracy": total.accuracy, "pairs": total.pairs, "ties": total.ties, "files": files}

    def _repr_html_(self) -> str:
        return html(scores_section(self.as_json()))


class ScoringPipeline(Pipeline):
    """A model that scores texts by the surprisals of their tokens."""

    @abstractmethod
    def score(self, text: str) -> Surprisals:
        """The surprisal of each token of a text."""

    @abstractmethod
    def score_stream(self, chunks: Iterable[str]) -> Iterator[TokenScore]:
        """The surprisal of each token of a text in pieces."""

    @abstractmethod
    def total_nats(self, texts: Sequence[str]) -> ScoredTexts:
        """The ids of texts, and the sums of their tokens' surprisals."""

    def check_scores(self) -> None:
        """Raises EnsueError for a model without probabilities."""

    def plot_surprisal(self, text: str, other: str | ScoringPipeline = "", *, ax: Any = None) -> Any:
        """Draws the surprisal of each token of `text` with matplotlib, on the axes `ax` or new ones; returns them.

        `other` is a text to be seen beside it, or another model that reads the same text. Raises EnsueError for models
        that do not cut the text into the same tokens.
        """
        first = self.score(text)
        if isinstance(other, ScoringPipeline):
            second = other.score(text)
            if second.tokens != first.tokens:
                raise EnsueError("the two models do not cut the text into the same tokens")
            names = [str(self.run or "this model"), str(other.run or "the other model")]
        else:
            second = self.score(other) if other else Surprisals()
            names = distinct_names([text, other])
        names[1] += " (the other)" * (names[0] == names[1])
        pairs = zip_longest(first.tokens, second.tokens, fillvalue="")
        words = [one or two if two in ("", one) or not one else f"{one} / {two}" for one, two in pairs]
        found = {name: [score.nats for score in scores] for name, scores in zip(names, (first, second), strict=True)}
        return Lines(words, {name: nats for name, nats in found.items() if nats}, "surprisal in nats").draw(ax)

    def score_lines(self, location: str, *, encoding: str = "utf-8", as_json: bool = False) -> Iterator[str]:
        """The lines of `ensue score`: one for each token of a text ("-": stdin)."""
        self.check_scores()
        return score_lines(self, location, encoding, as_json=as_json)

    def minimal_pairs(
        self,
        location: Location,
        *,
        encoding: str = "utf-8",
        progress: Callable[[PairScore], None] | None = None,
    ) -> MinimalPairScores:
        """How often the better one of two texts is the more probable one, by the sum of its tokens' surprisals."""
        self.check_scores()
        location = one_location(location, "the pairs")
        return score_pairs(self.total_nats, location, encoding=encoding, progress=progress)


def score_pairs(
    scored: Callable[[Sequence[str]], ScoredTexts],
    location: str | Path,
    *,
    encoding: str = "utf-8",
    progress: Callable[[PairScore], None] | None = None,
) -> MinimalPairScores:
    """Scores the pairs of a file, of the files of a folder or of a glob; `progress` is called with each file's score.

    Raises DataError (file:line) for a line that is no pair, a file without pairs, and a folder without a file in a
    known format.
    """
    rows = []
    for path in pair_files(location, encoding=encoding):
        row = _score_file(scored, path, encoding)
        rows.append(row)
        if progress is not None:
            progress(row)
    return MinimalPairScores(tuple(rows))


def _score_file(scored: Callable[[Sequence[str]], ScoredTexts], path: Path, encoding: str) -> PairScore:
    pairs, ties, right = 0, 0, 0
    reader = read_pairs(path, encoding=encoding)
    while some := list(islice(reader, PAIRS_AT_A_TIME)):
        pairs += len(some)
        tied, better = _decided(scored, some)
        ties += tied
        right += better
    if not pairs:
        raise DataError("no pair in this file", path)
    return PairScore(Path(stem(path)).name, pairs, right + ties / 2, ties)


def _decided(scored: Callable[[Sequence[str]], ScoredTexts], pairs: list[MinimalPair]) -> tuple[int, int]:
    """The number of ties, and of other pairs whose better text is more probable. Texts with the same ids are a tie."""
    ids, nats = scored([text for pair in pairs for text in pair])
    same = np.array([np.array_equal(good, bad) for good, bad in zip(ids[::2], ids[1::2], strict=True)])
    good, bad = nats.reshape(-1, 2).T
    ties = same | (good == bad)
    return int(ties.sum()), int((~ties & (good < bad)).sum())
