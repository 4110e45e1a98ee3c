"""Comparison of the answers of two classifiers or taggers, and bounds on scores."""

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from heapq import nlargest
from typing import Any, NamedTuple

from ensue.errors import EnsueError, nearest
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.text.label_columns import LabelColumns
from ensue.text.schemes import Span

MAX_SHOWN = 20
"""The maximum number of changed answers in a comparison."""
MAX_EXACT = 1_000
"""The maximum number of changed answers for the exact test instead of chi-square with continuity correction."""


class Change(NamedTuple):
    """An answer that became wrong (`lost`) or right (`won`), with the probability of the new answer."""

    change: str
    place: str
    gold: str
    old: str
    new: str
    probability: float
    text: str

    @classmethod
    def of(cls, place: str, answers: Iterable[str], probability: float, text: str) -> "Change":
        gold, old, new = answers
        return cls("", place, gold, old, new, probability, text)


@dataclass(frozen=True)
class Changes:
    """Counts of answers that became wrong (`lost`) or right (`won`), McNemar's test, and the most certain changes."""

    unit: str
    items: int
    lost: int
    won: int
    p: float
    test: str
    most_certain: tuple[Change, ...]

    @property
    def shares(self) -> dict[str, float]:
        """The shares of items that became wrong ("lost") and right ("won")."""
        return {name: count / max(1, self.items) for name, count in (("lost", self.lost), ("won", self.won))}

    def summary(self, run: str) -> str:
        """Return the counts and the test in one line."""
        lost, won = (f"{100 * share:.2f} %" for share in self.shares.values())
        counts = f"{self.lost:,} became wrong (lost: {lost}) and {self.won:,} right (won: {won})"
        return f"{run}: of {self.items:,} {self.unit}, {counts}; McNemar's {self.test} test: p {self.p:.3g}"

    def as_json(self) -> dict[str, Any]:
        """Return the changes as JSON values."""
        return asdict(self) | {"most_certain": [change._asdict() for change in self.most_certain]}


def mcnemar(lost: int, won: int) -> tuple[float, str]:
    """Return the p-value of McNemar's test (1947) of equal shares of correct answers, and the name of the test."""
    total = lost + won
    if total <= MAX_EXACT:
        tail = sum(math.comb(total, count) for count in range(min(lost, won) + 1))
        return min(1.0, 2 * tail / 2**total), "exact"
    return math.erfc(math.sqrt(max(0, abs(lost - won) - 1) ** 2 / total / 2)), "chi-square"


Item = tuple[bool, bool, Change]
"""Whether the old answer is correct, whether the new answer is correct, and both answers."""


def count_changes(old: Any, new: Any, location: str, **options: Any) -> Changes:
    """Return the changed answers of two pipelines of the same class, a key of `COMPARED`."""
    unit, items_of = COMPARED[type(new)]
    counts, total, changed = {"lost": 0, "won": 0}, 0, list[Change]()
    for was_right, is_right, change in items_of(old, new, location, **options):
        total += 1
        if was_right != is_right:
            name = "won" if is_right else "lost"
            counts[name] += 1
            changed.append(change._replace(change=name))
    unit = "words" if unit == "spans" and not new.labels.has_spans else unit
    p, test = mcnemar(**counts)
    most_certain = tuple(nlargest(MAX_SHOWN, changed, key=lambda change: change.probability))
    return Changes(unit, total, **counts, p=p, test=test, most_certain=most_certain)


def _compare_texts(
    old: ClassificationPipeline, new: ClassificationPipeline, location: str, **options: Any
) -> Iterator[Item]:
    answers = (pipeline.classify(pipeline.source(location, **options)) for pipeline in (old, new))
    for before, after in zip(*answers, strict=True):
        document = after.document
        _require_equal(before.document.texts, document.texts)
        predicted = new.labels.choose(after.probabilities)
        by_label = new.labels.by_name(after.probabilities)
        probability = min((by_label[name] for name in predicted), default=1 - max(by_label.values()))
        labels = [sorted(names) for names in (document.labels, old.labels.choose(before.probabilities), predicted)]
        shown_labels = (" ".join(names) or "-" for names in labels)
        place, text = f"{document.path}:{document.line}", " | ".join(document.texts)
        yield labels[1] == labels[0], labels[2] == labels[0], Change.of(place, shown_labels, probability, text)


def _compare_sentences(old: LabelingPipeline, new: LabelingPipeline, location: str, **options: Any) -> Iterator[Item]:
    _require_equal(*((type(x.labels), isinstance(x.labels, LabelColumns) and x.labels.names) for x in (old, new)))
    answers = old.label(old.source(location, is_labeled=True, **options)), new.label_pairs(location, **options)
    for old_answer, ((sentence, predicted, confidence, _), pair) in zip(*answers, strict=True):
        _require_equal(old_answer.sentence.words, sentence.words)
        assert confidence is not None
        labels = [pair.gold, old_answer.labels, predicted]
        scores = [min(p.values()) if isinstance(p, dict) else p for p in confidence.labels]
        if isinstance(new.labels, LabelColumns) or not new.labels.has_spans:
            for word, row in enumerate(zip(*labels, strict=True)):
                shown_labels = ("/".join(label) if isinstance(label, tuple | list) else label for label in row)
                context = _show_in_context(sentence.words, word, word + 1)
                change = Change.of(pair.place, shown_labels, scores[word], context)
                yield row[1] == row[0], row[2] == row[0], change
            continue
        gold, before, after = spans = [new.labels.spans(row) for row in labels]
        for span in sorted({*gold, *before, *after}, key=lambda span: span[1:]):
            probability = confidence.spans[after.index(span)] if span in after else min(scores[span.start : span.end])
            shown_labels = (_describe_span(span, row, sentence.words) for row in spans)
            context = _show_in_context(sentence.words, span.start, span.end)
            change = Change.of(pair.place, shown_labels, probability, context)
            yield (span in before) == (span in gold), (span in after) == (span in gold), change


COMPARED: Mapping[type, tuple[str, Callable[..., Iterator[Item]]]] = {
    ClassificationPipeline: ("texts", _compare_texts), LabelingPipeline: ("spans", _compare_sentences),
}  # fmt: skip
"""For each class of pipelines the noun for the items, and the function that compares the answers."""


def _require_equal(first: object, second: object) -> None:
    if first != second:
        raise EnsueError("changed answers are not counted: the runs read different texts or columns from the data")


def _describe_span(span: Span, spans: Sequence[Span], words: Sequence[str]) -> str:
    """Return the label of the same words among `spans`, else the overlapping spans with their words, else "-"."""
    if same := [other.label for other in spans if other[1:] == span[1:]]:
        return span.label if span.label in same else same[0]
    overlapping = [other for other in spans if other.start < span.end and span.start < other.end]
    return " ".join(f"{other.label} [{' '.join(words[other.start : other.end])}]" for other in overlapping) or "-"


def _show_in_context(words: Sequence[str], start: int, end: int) -> str:
    return " ".join([*words[max(0, start - 5) : start], f"[{' '.join(words[start:end])}]", *words[end : end + 5]])


OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
BOUND_PATTERN = re.compile(
    r"\s*([a-z]\w*(?:[ \-]+\w+)*)\s*(>=|<=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(%?)\s*", re.I
)


class Bound(NamedTuple):
    """A bound on a score of the last run, or on its share of answers that became wrong ("lost") or right ("won")."""

    text: str
    name: str
    sign: str
    limit: float
    value: float = math.nan

    @classmethod
    def parse(cls, text: str) -> "Bound":
        """Return the bound that a text such as "lost <= 0.5 %" describes."""
        if (match := BOUND_PATTERN.fullmatch(text)) is None:
            raise EnsueError(f'--require "{text}": expected NAME, >=, <=, > or <, and a number, such as "f1 >= 0.9"')
        name, sign, number, percent = match.groups()
        return cls(text.strip(), re.sub(r"[ \-]+", "_", name.lower()), sign, float(number) / (100 if percent else 1))

    def with_value(self, values: Mapping[str, float]) -> "Bound":
        """Return the bound with its value from `values`. Raise EnsueError if the name is unknown."""
        if self.name not in values:
            expected = nearest(self.name, values) or f"; expected one of {', '.join(values)}"
            if self.name in ("lost", "won"):
                expected = ", which needs --test DATA, and classifiers or taggers"
            raise EnsueError(f'--require "{self.text}": the comparison has no {self.name}{expected}')
        return self._replace(value=values[self.name])

    @property
    def holds(self) -> bool:
        """Whether the value satisfies the bound."""
        return bool(OPERATORS[self.sign](self.value, self.limit))

    def __str__(self) -> str:
        value = f"{100 * self.value:.4g} %" if "%" in self.text else f"{self.value:.6g}"
        return f"{self.text}: {'holds' if self.holds else 'fails'}, found {value}"
