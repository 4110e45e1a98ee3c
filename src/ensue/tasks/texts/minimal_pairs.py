"""Minimal pairs: the share of pairs whose better text is more probable. `data.corpus.pairs` reads the files."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.corpus.pairs import pair_files, read_pairs, stem
from ensue.data.files import Data, as_location
from ensue.data.parallel import batched
from ensue.data.sources import TextSource, is_stream, stream_text
from ensue.errors import DataError, EnsueError, distinct_names
from ensue.inspection.notebook import html, scores_section
from ensue.runs.pictures import LinePlot
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.contract.token_scores import Surprisals, TokenScore

CHUNK_PAIRS = 256
"""The number of pairs that are scored together."""


class ScoredTexts(NamedTuple):
    """The ids of the tokens of N texts, and the negative log-probability of each text in nats (N,)."""

    ids: Sequence[NDArray[np.int64]]
    nats: NDArray[np.float64]


class PairScore(NamedTuple):
    """The score of the pairs of a file, or of several files."""

    name: str
    pairs: int
    """The number of pairs."""
    num_correct: float
    """The number of pairs whose better text has the higher probability; a tie counts 1/2."""
    ties: int = 0
    """The number of pairs whose texts have the same probability or the same ids."""

    @property
    def accuracy(self) -> float:
        """The share of pairs whose better text has the higher probability; a tie counts 1/2."""
        return self.num_correct / self.pairs

    def as_json(self) -> dict[str, Any]:
        """Return the keys of a row in `evaluate --json`."""
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
        """Return the keys of `evaluate --json`."""
        total = self.total
        files = [row.as_json() for row in self.rows]
        return {"accuracy": total.accuracy, "pairs": total.pairs, "ties": total.ties, "files": files}

    def _repr_html_(self) -> str:
        return html(scores_section(self.as_json()))


class ScoringPipeline(Pipeline):
    """A model that scores texts by the surprisals of their tokens."""

    @abstractmethod
    def score(self, text: str) -> Surprisals:
        """Return the surprisal of each token of a text."""

    @abstractmethod
    def score_stream(self, chunks: Iterable[str]) -> Iterator[TokenScore]:
        """Yield the surprisal of each token of a text that is read in chunks."""

    @abstractmethod
    def score_texts(self, texts: Sequence[str]) -> ScoredTexts:
        """Return the ids of the tokens of each text, and the summed surprisals of each text."""

    def check_can_score(self) -> None:
        """Raise EnsueError if the model has no probabilities of texts."""

    def plot_surprisal(self, text: str, other: "str | ScoringPipeline" = "", *, ax: Any = None) -> Any:
        """Draw the surprisals of a text with matplotlib; `other` is a second text, or a second model for the text."""
        first = self.score(text)
        if isinstance(other, ScoringPipeline):
            second = other.score(text)
            if second.tokens != first.tokens:
                raise EnsueError("the tokenizers of the two models split the text into different tokens")
            names = [str(self.run or "this model"), str(other.run or "the other model")]
        else:
            second = self.score(other) if other else Surprisals()
            names = distinct_names([text, other])
        names[1] += " (the other)" * (names[0] == names[1])
        pairs = zip_longest(first.tokens, second.tokens, fillvalue="")
        words = [left or right if right in ("", left) or not left else f"{left} / {right}" for left, right in pairs]
        lines = {name: [score.nats for score in scores] for name, scores in zip(names, (first, second), strict=True)}
        return LinePlot(words, {name: nats for name, nats in lines.items() if nats}, "surprisal in nats").draw(ax)

    def score_lines(self, location: str, *, encoding: str = "utf-8", as_json: bool = False) -> Iterator[str]:
        """Return the lines of `ensue score`: a line for each token of a text. The location "-" is stdin."""
        self.check_can_score()
        source = None if is_stream(location) else TextSource(location, encoding=encoding)
        chunks = stream_text(location, encoding) if source is None else source.chunks()
        return (score.line(as_json=as_json) for score in self.score_stream(chunks))

    def minimal_pairs(
        self, location: Data, *, encoding: str = "utf-8", progress: Callable[[PairScore], None] | None = None
    ) -> MinimalPairScores:
        """Return the accuracy on minimal pairs: how often the better text of a pair has the higher probability. The
        pairs are in a file, or in the files of a folder or glob. `progress` is called with the score of each file.
        """
        self.check_can_score()
        rows = []
        for path in pair_files(as_location(location, "the pairs"), encoding=encoding):
            rows.append(self._score_file(path, encoding))
            if progress is not None:
                progress(rows[-1])
        return MinimalPairScores(tuple(rows))

    def _score_file(self, path: Path, encoding: str) -> PairScore:
        pairs, ties, correct = 0, 0, 0
        for chunk in batched(read_pairs(path, encoding=encoding), CHUNK_PAIRS):
            ids, nats = self.score_texts([text for pair in chunk for text in pair])
            are_equal = np.array([np.array_equal(good, bad) for good, bad in zip(ids[::2], ids[1::2], strict=True)])
            good, bad = nats.reshape(-1, 2).T
            is_tie = are_equal | (good == bad)
            pairs += len(chunk)
            ties += int(is_tie.sum())
            correct += int((~is_tie & (good < bad)).sum())
        if not pairs:
            raise DataError("no pairs", path)
        return PairScore(Path(stem(path)).name, pairs, correct + ties / 2, ties)
