"""Scores of sequence labeling: accuracy over tokens, and precision, recall and F1 over spans (or plain labels)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ensue.metrics.confusion import LabelScore, LabelsScores, label_scores, macro_f1, most_confused, overall, share
from ensue.text.label_columns import LabelColumns
from ensue.text.schemes import Span, position, spans

CONFUSIONS = 20
Reading = Callable[[Sequence[str]], list[Span]]
"""How labels are read as spans."""


@dataclass(frozen=True)
class LabelingScores(LabelsScores):
    """The scores of a tagger, and counts.

    `precision`, `recall` and `f1` are over all spans (`is_spans`), or over all tokens, for which the three equal the
    accuracy. `per_label` is by span class, or by label. `confusion` has the most frequent confusions of token labels as
    (gold, predicted, count). `misaligned` gold spans begin or end inside of a word; none of them can be predicted, and
    they count as misses. The first one is at `first_misaligned`.
    """

    in_json = (
        "accuracy", "precision", "recall", "f1", "tokens", "per_label", "macro_f1", "sentences", "confusion",
        "unknown_labels",
    )  # fmt: skip
    is_spans: bool
    precision: float
    recall: float
    f1: float
    tokens: int
    sentences: int
    confusion: list[tuple[str, str, int]]
    pairs: Counter[tuple[str, str]]
    """How often each label of a token was predicted as each: all (gold, predicted)."""
    misaligned: int = 0
    first_misaligned: str = ""

    def matrix(self) -> tuple[list[str], list[list[int]]]:
        """All labels of tokens, and a row of counts for each right one, with a column for each predicted one."""
        labels = sorted({label for pair in self.pairs for label in pair})
        return labels, [[self.pairs[gold, predicted] for predicted in labels] for gold in labels]

    def as_json(self) -> dict[str, Any]:
        names = ("gold", "predicted", "count")
        misaligned = {"misaligned": self.misaligned} if self.misaligned else {}
        return (
            super().as_json()
            | {"confusion": [dict(zip(names, row, strict=True)) for row in self.confusion]}
            | misaligned
        )

    @property
    def headline(self) -> tuple[str, float]:
        return ("F1", self.f1) if self.is_spans else ("macro F1", self.macro_f1)


class LabelingTally:
    """Counts sentences one by one, and holds only counts, so a file may have any length.

    With `spans`, precision, recall and F1 are those of conlleval: a predicted span is correct if a gold span has the
    same class, start and end. Spans are read by `ensue.text.schemes.spans`, so labels that break their scheme are
    neither corrected nor dropped; `read` is another way. A span ends with its sentence. A precision without
    predictions, a recall without gold spans and an F1 of two zeros are 0. Accuracy compares the labels of tokens
    unchanged, so gold labels and predictions have the same scheme (`in_scheme` of the model's labels).
    """

    def __init__(self, *, spans: bool, read: Reading = spans) -> None:
        self.is_spans, self._read = spans, read
        self._sentences, self._misaligned, self._first = 0, 0, ""
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._correct: Counter[str] = Counter()
        self._gold: Counter[str] = Counter()
        self._predicted: Counter[str] = Counter()

    def add(
        self, gold: Sequence[str], predicted: Sequence[str], misaligned: Sequence[Span] = (), place: str = ""
    ) -> None:
        """Counts one sentence, by its right and its predicted labels. Its `misaligned` spans, of which `gold` has the
        words, are misses.
        """
        assert len(gold) == len(predicted), f"{len(predicted)} labels for {len(gold)} tokens"
        self._sentences += 1
        self._misaligned += len(misaligned)
        self._first = self._first or (place if misaligned else "")
        self._pairs.update(zip(gold, predicted, strict=True))
        if self.is_spans:
            gold_spans, predicted_spans = set(self._read(gold)) - {*misaligned}, self._read(predicted)
            self._gold.update(span.label for span in (*gold_spans, *misaligned))
            self._predicted.update(span.label for span in predicted_spans)
            self._correct.update(span.label for span in gold_spans & {*predicted_spans})

    def scores(self, known: Iterable[str] | None = None) -> LabelingScores:
        """The scores of all sentences so far. `known` are the model's labels; with `spans`, their classes count."""
        correct, gold, predicted = map(Counter, (self._correct, self._gold, self._predicted))
        for (right, said), count in () if self.is_spans else self._pairs.items():
            gold[right] += count
            predicted[said] += count
            correct[right] += count if right == said else 0
        per_label = label_scores(correct, gold, predicted)
        total, tokens = overall(per_label, correct), self._pairs.total()
        return LabelingScores(
            is_spans=self.is_spans,
            accuracy=share(sum(count for (a, b), count in self._pairs.items() if a == b), tokens),
            precision=total.precision,
            recall=total.recall,
            f1=total.f1,
            macro_f1=macro_f1(per_label),
            tokens=tokens,
            sentences=self._sentences,
            per_label=per_label,
            confusion=most_confused(self._pairs, CONFUSIONS),
            unknown_labels={} if known is None else self._unknown(gold, known),
            pairs=self._pairs,
            misaligned=self._misaligned,
            first_misaligned=self._first,
        )

    def _unknown(self, gold: Counter[str], known: Iterable[str]) -> dict[str, int]:
        names = {position(tag).label for tag in known} if self.is_spans else {*known}
        return {label: count for label, count in gold.most_common() if label not in names}


class ColumnsTally:
    """Counts the labels of several columns: a label is a tuple with a value for each.

    Accuracy, precision, recall and F1 are those of words that are right in all columns. `per_label` has the scores of
    each column, and `macro_f1` is the mean of their F1.
    """

    def __init__(self, labels: LabelColumns) -> None:
        self._spans = {name: any(part.labels.has_spans for part in parts) for name, parts in labels.columns.items()}
        self._columns = {name: LabelingTally(spans=of_spans) for name, of_spans in self._spans.items()}
        plain = {name: parts[0] for name, parts in labels.columns.items() if parts[0].kind == "label"}
        self._known = {name: part.labels.names for name, part in plain.items()}
        self._right, self._tokens, self._sentences = 0, 0, 0

    def add(
        self,
        gold: Sequence[tuple[str, ...]],
        predicted: Sequence[tuple[str, ...]],
        misaligned: Mapping[str, Sequence[Span]] = MappingProxyType({}),
        place: str = "",
    ) -> None:
        """Counts one sentence, by its right and its predicted labels."""
        assert len(gold) == len(predicted), f"{len(predicted)} labels for {len(gold)} tokens"
        right, tokens = right_tokens(gold, predicted)
        self._right, self._tokens, self._sentences = self._right + right, self._tokens + tokens, self._sentences + 1
        for number, (name, tally) in enumerate(self._columns.items()):
            cut = misaligned.get(name, ())
            tally.add([row[number] for row in gold], [row[number] for row in predicted], cut, place)

    def scores(self) -> LabelingScores:
        """The scores of all sentences so far."""
        found = {name: tally.scores(self._known.get(name)) for name, tally in self._columns.items()}
        per_label = {name: _overall(scores) for name, scores in found.items()}
        wrong = [(f"{name} {a}", f"{name} {b}", n) for name, one in found.items() for a, b, n in one.confusion]
        unknown = {f"{name} {a}": n for name, one in found.items() for a, n in one.unknown_labels.items()}
        accuracy = share(self._right, self._tokens)
        return LabelingScores(
            is_spans=False, accuracy=accuracy, precision=accuracy, recall=accuracy, f1=accuracy,
            macro_f1=macro_f1(per_label), tokens=self._tokens, sentences=self._sentences, per_label=per_label,
            confusion=sorted(wrong, key=lambda confusion: (-confusion[2], confusion))[:CONFUSIONS],
            unknown_labels=unknown, pairs=Counter(), misaligned=sum(one.misaligned for one in found.values()),
            first_misaligned=next((one.first_misaligned for one in found.values() if one.misaligned), ""),
        )  # fmt: skip


def _overall(scores: LabelingScores) -> LabelScore:
    """The scores of a column as those of one label."""
    if not scores.is_spans:
        return LabelScore(scores.precision, scores.recall, scores.f1, scores.tokens, scores.tokens)
    support = sum(one.support for one in scores.per_label.values())
    predicted = sum(one.predicted for one in scores.per_label.values())
    return LabelScore(scores.precision, scores.recall, scores.f1, support, predicted)


def right_tokens(gold: Sequence[object], predicted: Sequence[object]) -> tuple[int, int]:
    """How many labels of a sentence are right, and how many it has."""
    return sum(a == b for a, b in zip(gold, predicted, strict=True)), len(gold)


def right_spans(
    gold: Sequence[str], predicted: Sequence[str], read: Reading = spans, misaligned: Sequence[Span] = ()
) -> tuple[int, int, int]:
    """How many spans of a sentence are found, how many it has, and how many are predicted."""
    theirs, ours = set(read(gold)) - {*misaligned}, set(read(predicted))
    return len(theirs & ours), len(theirs) + len(misaligned), len(ours)
