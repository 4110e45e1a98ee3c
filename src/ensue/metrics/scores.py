"""Scores of a model on test data, as a line for people and as JSON, and whether one model is better than another.

The test is the paired bootstrap: the items of the test data (sentences, texts, pairs, pieces of a text) are drawn with
replacement, as many as there are, and all models are scored on each such sample (Efron & Tibshirani 1993; Koehn 2004).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ensue.inspection.notebook import ShownScores


def card_columns(form: str, *names: str, **titles: str) -> dict[str, tuple[str, str]]:
    """The titles of scores on a model card, with their format."""
    titles = {name: name.replace("_", " ").replace("f1", "F1") for name in names} | titles
    return {name: (title, form) for name, title in titles.items()}


@dataclass(frozen=True)
class Scores(ShownScores, ABC):
    """Scores by name: the fields of a subclass, or those fields and properties that are `in_json`."""

    in_json: ClassVar[tuple[str, ...]] = ()
    on_card: ClassVar[Mapping[str, tuple[str, str]]] = MappingProxyType({})
    """The titles and formats of scores on a model card, by their keys in JSON."""

    def as_json(self) -> dict[str, Any]:
        """The keys of `evaluate --json`."""
        return {key: _json(getattr(self, key)) for key in self.in_json} or asdict(self)

    @abstractmethod
    def summary(self) -> str:
        """The scores in one line, for people."""


@dataclass(frozen=True)
class SummedScores(Scores):
    """Scores whose fields are sums over parts of the data. Scores of parts can be added."""

    compared: ClassVar[tuple[str, ...]] = ()
    """The scores that `ensue compare` tests; each is a property."""

    @classmethod
    def items(cls, rows: ItemRows, unit: str, remarks: Sequence[str] = ()) -> ScoredItems:
        """Parts of the data as items for a test of differences. A row has the first fields of the scores of a part."""

        def score_of(name: str) -> Score:
            return of_sums(lambda sums: np.array([getattr(cls(*row), name) for row in sums.tolist()]))

        return rows.scored(unit, {name: score_of(name) for name in cls.compared}, remarks)

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


NumberT = TypeVar("NumberT", float, NDArray[np.float64])


def share(part: NumberT, whole: NumberT) -> NumberT:
    """`part / whole`, of numbers or of arrays; 0 where `whole` is 0."""
    if isinstance(whole, np.ndarray):
        return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)
    return part / whole if whole else 0.0


def f1_of(correct: NumberT, gold: NumberT, predicted: NumberT) -> NumberT:
    """`2 precision recall / (precision + recall)`, from counts."""
    return share(2 * correct, gold + predicted)


def mean(total: float, count: float) -> float:
    """`total / count`; NaN of none."""
    return total / count if count else math.nan


def perplexity(nats: float) -> float:
    """`exp(nats)`; infinite if that exceeds the floating-point numbers."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _json(part) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return finite(value) if isinstance(value, float) else value


def finite(number: float) -> float | None:
    """The number; None if it is not finite, which JSON does not have."""
    return number if math.isfinite(number) else None


RESAMPLES = 1_000
SEED = 15
MOST_ROWS = 10_000
"""Of more items, neighbors are one item together, so that memory and time stay as they are."""

Numbers = NDArray[np.float64]
Score = Callable[[Numbers, NDArray[np.int64]], Numbers]
"""From the rows (N, K) of items, and how often each is in each sample (R, N), to the score of each sample (R,)."""


def of_sums(score: Callable[[Numbers], Numbers]) -> Score:
    """A score that follows from the sums (R, K) over the items of a sample."""
    return lambda rows, counts: score(counts @ rows)


def ratio(part: int, whole: int) -> Score:
    """The sum of a column, divided by that of another; 0 where that is 0."""
    return of_sums(lambda sums: share(sums[:, part], sums[:, whole]))


def f1(correct: int, gold: int, predicted: int) -> Score:
    """F1 of the counts in three columns."""
    return of_sums(lambda sums: f1_of(sums[:, correct], sums[:, gold], sums[:, predicted]))


@dataclass(frozen=True)
class ScoredItems:
    """The items of test data, and for each the numbers (N, K) that scores are made of.

    `unit` names the items, `size` tells how many there were before neighbors were put together. `remarks` are what
    else has to be known of the scores, a line each.
    """

    unit: str
    size: int
    rows: Numbers
    scores: Mapping[str, Score]
    remarks: Sequence[str] = field(default=())

    def whole(self) -> dict[str, float]:
        """The scores of all items."""
        everything = np.ones((1, len(self.rows)), np.int64)
        return {name: float(score(self.rows, everything)[0]) for name, score in self.scores.items()}

    def samples(self) -> dict[str, Numbers]:
        """The scores of each sample (RESAMPLES,). The samples are the same for every model."""
        size = len(self.rows)
        draws = np.random.default_rng(SEED).integers(0, size, (RESAMPLES, size), np.int32)
        counts = np.stack([np.bincount(drawn, minlength=size) for drawn in draws])
        return {name: score(self.rows, counts) for name, score in self.scores.items()}


class ItemRows:
    """Collects the rows of items one by one. Neighbors are added up when there are too many."""

    def __init__(self, rows: Iterable[ArrayLike] = ()) -> None:
        self.size = 0
        self._rows: list[Numbers] = []
        self._together = 1
        for row in rows:
            self.append(row)

    def append(self, row: ArrayLike) -> None:
        """The row of the next item."""
        numbers = np.asarray(row, np.float64)
        if self.size % self._together:
            self._rows[-1] = self._rows[-1] + numbers
        else:
            self._rows.append(numbers)
        self.size += 1
        if len(self._rows) == 2 * MOST_ROWS and not self.size % self._together:
            self._rows = [a + b for a, b in zip(self._rows[::2], self._rows[1::2], strict=True)]
            self._together *= 2

    def scored(self, unit: str, scores: Mapping[str, Score], remarks: Sequence[str] = ()) -> ScoredItems:
        """The items so far."""
        return ScoredItems(unit, self.size, np.stack(self._rows) if self._rows else np.zeros((0, 1)), scores, remarks)


@dataclass(frozen=True)
class Difference:
    """A score minus another model's, the interval of 95 % of the samples, and p if there were no difference."""

    value: float
    low: float
    high: float
    p: float

    def as_json(self) -> dict[str, Any]:
        """The numbers by name."""
        return {"difference": self.value, "low": self.low, "high": self.high, "p": self.p}


def differences(ours: ScoredItems, theirs: ScoredItems) -> dict[str, Difference]:
    """The differences of the scores that both have. Items of another kind or number have none."""
    if (ours.unit, ours.size) != (theirs.unit, theirs.size) or len(ours.rows) < 2:
        return {}
    whole, other, samples, drawn = ours.whole(), theirs.whole(), ours.samples(), theirs.samples()
    return {
        name: _difference(whole[name] - other[name], samples[name] - drawn[name]) for name in samples if name in drawn
    }


def _difference(value: float, samples: Numbers) -> Difference:
    # samples stand around the difference itself; moved to 0 they show what chance alone would do
    by_chance = np.abs(samples - samples.mean()) >= abs(value)
    low, high = np.quantile(samples, (0.025, 0.975))
    return Difference(value, float(low), float(high), float((by_chance.sum() + 1) / (len(samples) + 1)))
