"""Scores of language models and of vectors of words, base classes of scores, and significance tests of differences.

The test is the paired bootstrap (Efron & Tibshirani 1993; Koehn 2004): items of the test data (sentences, texts, pairs
or segments of a text) are drawn with replacement, and all models are scored on the same samples.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ensue.inspection.notebook import ShownScores


def card_columns(format_spec: str, *names: str, **titles: str) -> dict[str, tuple[str, str]]:
    """Return the titles and formats of scores on a model card, by their keys in JSON.

    All scores have the format `format_spec`. The titles of `names` are derived from the keys; `titles` has the others.
    """
    titles = {name: name.replace("_", " ").replace("f1", "F1") for name in names} | titles
    return {name: (title, format_spec) for name, title in titles.items()}


@dataclass(frozen=True)
class Scores(ShownScores, ABC):
    """The base class of scores. A subclass has the scores as fields and properties."""

    in_json: ClassVar[tuple[str, ...]] = ()
    """The names of fields and properties in JSON; by default all fields."""
    on_card: ClassVar[Mapping[str, tuple[str, str]]] = MappingProxyType({})
    """The titles and formats of scores on a model card, by their keys in JSON."""

    def as_json(self) -> dict[str, Any]:
        """Return the scores as JSON values, for `evaluate --json`."""
        return {key: _to_json(getattr(self, key)) for key in self.in_json} or asdict(self)

    @abstractmethod
    def summary(self) -> str:
        """Return the scores in one line."""


@dataclass(frozen=True)
class SummedScores(Scores):
    """Scores whose fields are sums over the data, so that the scores of subsets can be added."""

    compared: ClassVar[tuple[str, ...]] = ()
    """The names of the properties that `ensue compare` tests."""

    @classmethod
    def scored_items(cls, rows: "ItemRows", unit: str, remarks: Sequence[str] = ()) -> "ScoredItems":
        """Return items for a significance test. A row has the first fields of this class; the others are defaults."""

        def score_of(name: str) -> Score:
            return of_sums(lambda sums: np.array([getattr(cls(*row), name) for row in sums.tolist()]))

        return rows.build_items(unit, {name: score_of(name) for name in cls.compared}, remarks)

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


NumberT = TypeVar("NumberT", float, NDArray[np.float64])


def ratio_or_zero(count: NumberT, total: NumberT) -> NumberT:
    """Return `count / total` of numbers or arrays; 0 for a total of 0."""
    if isinstance(total, np.ndarray):
        return np.divide(count, total, out=np.zeros(len(total)), where=total > 0)
    return count / total if total else 0.0


def compute_f1(correct: NumberT, gold: NumberT, predicted: NumberT) -> NumberT:
    """Return F1, `2 precision recall / (precision + recall)`, from counts."""
    return ratio_or_zero(2 * correct, gold + predicted)


def ratio_or_nan(total: float, count: float) -> float:
    """Return `total / count`; NaN for a count of 0."""
    return total / count if count else math.nan


def perplexity(nats: float) -> float:
    """Return `exp(nats)`; infinite after overflow."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _to_json(inner) for name, inner in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return finite(value) if isinstance(value, float) else value


def finite(number: float) -> float | None:
    """Return the number, or None for NaN and infinity, which JSON does not support."""
    return number if math.isfinite(number) else None


RESAMPLES, SEED = 1_000, 15
"""The number of bootstrap samples, and their seed."""
MAX_ROWS = 20_000
"""When there are this many rows, pairs of consecutive rows are merged, which bounds memory and time."""

Numbers = NDArray[np.float64]
Score = Callable[[Numbers, NDArray[np.int64]], Numbers]
"""A function from the rows (N, K) of items and their counts in samples (R, N) to the score of each sample (R,)."""


def of_sums(score: Callable[[Numbers], Numbers]) -> Score:
    """Return a `Score` that sums the rows of each sample and applies `score` to the sums (R, K)."""
    return lambda rows, counts: score(counts @ rows)


def quotient(count: int, total: int) -> Score:
    """Return the score that is the quotient of the sums of two columns; 0 for a denominator of 0."""
    return of_sums(lambda sums: ratio_or_zero(sums[:, count], sums[:, total]))


def f1_score(correct: int, gold: int, predicted: int) -> Score:
    """Return the score that is the F1 of the sums of three columns."""
    return of_sums(lambda sums: compute_f1(sums[:, correct], sums[:, gold], sums[:, predicted]))


@dataclass(frozen=True)
class ScoredItems:
    """The items of test data, each with the numbers (K,) from which `score_functions` compute scores.

    `unit` is the noun of the items, such as "texts", `size` is the number of items, and `remarks` are notes for the
    user. `rows` may have fewer rows than items, since consecutive items are merged.
    """

    unit: str
    size: int
    rows: Numbers
    score_functions: Mapping[str, Score]
    remarks: Sequence[str] = field(default=())

    def compute(self) -> dict[str, float]:
        """Return the scores of all items."""
        once = np.ones((1, len(self.rows)), np.int64)
        return {name: float(score(self.rows, once)[0]) for name, score in self.score_functions.items()}

    def samples(self) -> dict[str, Numbers]:
        """Return each score of all samples, (RESAMPLES,). The samples are the same for all models."""
        size = len(self.rows)
        draws = np.random.default_rng(SEED).integers(0, size, (RESAMPLES, size), np.int32)
        counts = np.stack([np.bincount(drawn, minlength=size) for drawn in draws])
        return {name: score(self.rows, counts) for name, score in self.score_functions.items()}


class ItemRows:
    """A growing list of rows of numbers. If there are too many, consecutive rows are merged."""

    def __init__(self, rows: Iterable[ArrayLike] = ()) -> None:
        self.size = 0
        self._rows: list[Numbers] = []
        self._merged = 1
        for row in rows:
            self.append(row)

    def append(self, row: ArrayLike) -> None:
        """Append the row of the next item."""
        numbers = np.asarray(row, np.float64)
        if self.size % self._merged:
            self._rows[-1] = self._rows[-1] + numbers
        else:
            self._rows.append(numbers)
        self.size += 1
        if len(self._rows) == MAX_ROWS and not self.size % self._merged:
            self._rows = [a + b for a, b in zip(self._rows[::2], self._rows[1::2], strict=True)]
            self._merged *= 2

    def build_items(self, unit: str, functions: Mapping[str, Score], remarks: Sequence[str] = ()) -> ScoredItems:
        """Return the items of all rows, with the functions that compute their scores."""
        numbers = np.stack(self._rows) if self._rows else np.zeros((0, 1))
        return ScoredItems(unit, self.size, numbers, functions, remarks)


@dataclass(frozen=True)
class ScoreDifference:
    """The difference of a score of two models, its 95 % confidence interval, and the p-value."""

    value: float
    low: float
    high: float
    p: float

    def as_json(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        return {"difference": self.value, "low": self.low, "high": self.high, "p": self.p}


def differences(ours: ScoredItems, theirs: ScoredItems) -> dict[str, ScoreDifference]:
    """Return the differences of common scores; empty if units or numbers of items differ, or there are < 2 rows."""
    if (ours.unit, ours.size) != (theirs.unit, theirs.size) or len(ours.rows) < 2:
        return {}
    a, b, a_samples, b_samples = ours.compute(), theirs.compute(), ours.samples(), theirs.samples()
    names = [name for name in a_samples if name in b_samples]
    return {name: _compute_difference(a[name] - b[name], a_samples[name] - b_samples[name]) for name in names}


def _compute_difference(value: float, samples: Numbers) -> ScoreDifference:
    # the samples are shifted to a mean of 0, the null hypothesis
    by_chance = np.abs(samples - samples.mean()) >= abs(value)
    low, high = np.quantile(samples, (0.025, 0.975))
    return ScoreDifference(value, float(low), float(high), float((by_chance.sum() + 1) / (len(samples) + 1)))


@dataclass(frozen=True)
class LanguageScores(SummedScores):
    """The total surprisal in nats of `tokens` tokens with `characters` characters.

    `unknown` is the number of `<unk>` among the tokens. The surprisal of `<unk>` is too low, because the model does not
    predict which unknown symbol it stands for. Without tokens or characters, means are NaN (null in JSON).
    """

    in_json = ("nats_per_token", "perplexity", "bits_per_character", "tokens", "characters", "unknown")
    compared = ("bits_per_character",)
    on_card = card_columns(".4f", "nats_per_token", "perplexity", "bits_per_character")
    on_card |= card_columns(",", "tokens", "unknown")
    total_nats: float
    tokens: int
    characters: int
    unknown: int = 0

    @property
    def nats_per_token(self) -> float:
        """The mean surprisal of a token, in nats."""
        return ratio_or_nan(self.total_nats, self.tokens)

    @property
    def perplexity(self) -> float:
        """`exp(nats_per_token)`; infinite after overflow."""
        return perplexity(self.nats_per_token)

    @property
    def bits_per_character(self) -> float:
        """`total_nats / (ln 2 · characters)`, which can be compared between tokenizers."""
        return ratio_or_nan(self.total_nats, math.log(2) * self.characters)

    def summary(self) -> str:
        nats = f"{self.nats_per_token:.4f} nats per token, perplexity {self.perplexity:,.2f}"
        return f"{nats}, {self.bits_per_character:.4f} bits per character"


@dataclass(frozen=True)
class MaskedScores(SummedScores):
    """The total surprisal in nats of `masked` masked tokens in a text of `tokens` tokens.

    `right` is the number of masked tokens that were predicted correctly. `unknown` is the number of [UNK], which are
    never masked. `pairs_right` is the number of correct next-sentence predictions among `pairs` predictions.
    """

    in_json = ("masked_nats", "perplexity", "accuracy", "next_sentence_accuracy", "masked", "tokens", "unknown")
    compared = ("masked_nats", "accuracy")
    on_card = card_columns(".4f", masked_nats="nats per masked token") | card_columns(".2f", "perplexity")
    on_card |= card_columns(".4f", "accuracy") | card_columns(",", masked="masked tokens")
    total_nats: float = 0.0
    masked: int = 0
    right: int = 0
    tokens: int = 0
    unknown: int = 0
    pairs: int = 0
    pairs_right: int = 0

    @property
    def masked_nats(self) -> float:
        """The mean surprisal of a masked token, in nats."""
        return ratio_or_nan(self.total_nats, self.masked)

    @property
    def perplexity(self) -> float:
        """`exp(masked_nats)`; infinite after overflow."""
        return perplexity(self.masked_nats)

    @property
    def accuracy(self) -> float:
        """The share of masked tokens that had the highest probability."""
        return ratio_or_nan(self.right, self.masked)

    @property
    def next_sentence_accuracy(self) -> float:
        """The share of correct next-sentence predictions."""
        return ratio_or_nan(self.pairs_right, self.pairs)

    def as_json(self) -> dict[str, Any]:
        """Return the scores as JSON values, without next-sentence accuracy if there are no pairs."""
        return {key: x for key, x in super().as_json().items() if self.pairs or key != "next_sentence_accuracy"}

    def summary(self) -> str:
        pairs = f", next sentence {self.next_sentence_accuracy:.1%}" if self.pairs else ""
        nats = f"{self.masked_nats:.4f} nats per masked token, perplexity {self.perplexity:,.2f}"
        return f"{nats}, accuracy {self.accuracy:.1%}{pairs}"


@dataclass(frozen=True)
class TextSimilarityScores(Scores):
    """Pearson's r and Spearman's ρ between the cosines of pairs of texts and human similarity judgments."""

    spearman: float
    pearson: float
    pairs: int

    def summary(self) -> str:
        return f"Spearman {self.spearman:.4f}, Pearson {self.pearson:.4f}, {self.pairs:,} pairs"


def pearson(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Return Pearson's correlation of two vectors; 0 if a vector is constant."""
    x, y = a - a.mean(), b - b.mean()
    norm = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / norm) if norm else 0.0


@dataclass(frozen=True)
class SimilarityScores(Scores):
    """Spearman's ρ between the cosines of pairs of words and human similarity judgments.

    `covered` is the number of pairs whose words both have a vector; other pairs are ignored. If there are several
    files, `files` has the scores of each file, and `spearman` is their mean.
    """

    spearman: float
    covered: int
    pairs: int
    files: "dict[str, SimilarityScores]" = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        scores: dict[str, Any] = {"spearman": self.spearman, "covered": self.covered, "pairs": self.pairs}
        return scores | ({"files": {name: score.as_json() for name, score in self.files.items()}} if self.files else {})

    def summary(self) -> str:
        return f"Spearman {self.spearman:.4f}, {self.covered:,} of {self.pairs:,} pairs"


@dataclass(frozen=True)
class AnalogyScores(Scores):
    """The accuracy of analogy questions, also by section. In `covered` questions, all four words have a vector."""

    in_json = ("accuracy", "right", "covered", "questions")
    right: int
    covered: int
    questions: int
    sections: "dict[str, AnalogyScores]" = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """The share of correct answers to covered questions; 0 without covered questions."""
        return ratio_or_zero(self.right, self.covered)

    def as_json(self) -> dict[str, Any]:
        sections = {name: score.as_json() for name, score in self.sections.items()}
        return super().as_json() | ({"sections": sections} if sections else {})

    def summary(self) -> str:
        return f"accuracy {self.accuracy:.4f}, {self.covered:,} of {self.questions:,} questions"


def spearman(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Return Spearman's rank correlation of two vectors; 0 if a vector is constant. Ties have their mean rank."""
    return pearson(_rank(a), _rank(b))


def _rank(values: NDArray[np.floating]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean_ranks: NDArray[np.float64] = np.cumsum(counts) - (counts - 1) / 2
    return mean_ranks[inverse]
