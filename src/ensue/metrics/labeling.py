"""Scores of sequence labeling: accuracy over tokens, and precision, recall and F1 over spans (or plain labels)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq
from types import MappingProxyType
from typing import Any

from ensue.metrics.confusion import LabelsScores, Tally, macro_f1, most_confused
from ensue.metrics.scores import card_columns
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
        confusion = [dict(zip(names, row, strict=True)) for row in self.confusion]
        return {**super().as_json(), "confusion": confusion, **misaligned}

    @property
    def headline(self) -> tuple[str, float]:
        return ("F1", self.f1) if self.is_spans else ("macro F1", self.macro_f1)


SPANS_ON_CARD = card_columns(".2%", "accuracy", "precision", "recall", "f1")
LABELS_ON_CARD = card_columns(".2%", "accuracy", "macro_f1")
"""The scores on a card of a model whose labels are no spans."""


class LabelingTally(Tally[LabelingScores]):
    """Counts of sentences.

    With `spans`, precision, recall and F1 are those of conlleval: a predicted span is correct if a gold span has the
    same class, start and end. Spans are read by `ensue.text.schemes.spans`, so labels that break their scheme are
    neither corrected nor dropped; `read` is another way. A span ends with its sentence. A precision without
    predictions, a recall without gold spans and an F1 of two zeros are 0. Accuracy compares the labels of tokens
    unchanged, so gold labels and predictions have the same scheme (`in_scheme` of the model's labels).
    """

    def __init__(self, *, spans: bool, read: Reading = spans, known: Iterable[str] | None = None) -> None:
        super().__init__("f1" if spans else None)
        self.is_spans, self._read, self._known = spans, read, known
        self._misaligned, self._first = 0, ""

    def add(
        self,
        gold: Sequence[str],
        predicted: Sequence[str],
        misaligned: Mapping[str, Sequence[Span]] = MappingProxyType({}),
        place: str = "",
    ) -> tuple[int, ...]:
        """Counts a sentence, by its right and its predicted labels. `misaligned` spans of `gold` are misses."""
        assert len(gold) == len(predicted), f"{len(predicted)} labels for {len(gold)} tokens"
        cut = misaligned.get("", ())
        self._misaligned += len(cut)
        self._first = self._first or (place if cut else "")
        self.pairs.update(zip(gold, predicted, strict=True))
        right = [label for label, other in zip(gold, predicted, strict=True) if label == other]
        if not self.is_spans:
            return self._counted(len(right), len(gold), right, gold, predicted)
        gold_spans, predicted_spans = set(self._read(gold)) - {*cut}, self._read(predicted)
        correct = gold_spans & {*predicted_spans}
        labels = ([span.label for span in group] for group in (correct, (*gold_spans, *cut), predicted_spans))
        return self._counted(len(right), len(gold), *labels)

    def scores(self, known: Iterable[str] | None = None) -> LabelingScores:
        """The scores of all sentences so far. `known` are the model's labels; with `spans`, their classes count."""
        per_label, total = self.per_label, self.overall
        known = self._known if known is None else known
        if known is not None and self.is_spans:
            known = {position(tag).label for tag in known}
        return LabelingScores(
            is_spans=self.is_spans,
            accuracy=self.accuracy,
            precision=total.precision,
            recall=total.recall,
            f1=total.f1,
            macro_f1=macro_f1(per_label),
            tokens=self.sums[1],
            sentences=self.size,
            per_label=per_label,
            confusion=most_confused(self.pairs, CONFUSIONS),
            unknown_labels={} if known is None else self.unknown(known),
            pairs=self.pairs,
            misaligned=self._misaligned,
            first_misaligned=self._first,
        )


class ColumnsTally(Tally[LabelingScores]):
    """Counts of the labels of several columns: a label is a tuple with a value for each.

    Accuracy, precision, recall and F1 are those of words that are right in all columns. `per_label` has the scores of
    each column, and `macro_f1` is the mean of their F1.
    """

    def __init__(self, labels: LabelColumns) -> None:
        super().__init__()
        self._columns = {
            name: LabelingTally(
                spans=any(part.labels.has_spans for part in parts),
                known=parts[0].labels.names if parts[0].kind == "label" else None,
            )
            for name, parts in labels.columns.items()
        }

    def add(
        self,
        gold: Sequence[tuple[str, ...]],
        predicted: Sequence[tuple[str, ...]],
        misaligned: Mapping[str, Sequence[Span]] = MappingProxyType({}),
        place: str = "",
    ) -> tuple[int, ...]:
        for number, (name, tally) in enumerate(self._columns.items()):
            cut = {"": misaligned.get(name, ())}
            tally.add([row[number] for row in gold], [row[number] for row in predicted], cut, place)
        return self._counted(sum(map(eq, gold, predicted)), len(gold), (), (), ())

    def scores(self) -> LabelingScores:
        found = {name: tally.scores() for name, tally in self._columns.items()}
        per_label = {name: tally.overall for name, tally in self._columns.items()}
        wrong = [(f"{name} {a}", f"{name} {b}", n) for name, one in found.items() for a, b, n in one.confusion]
        unknown = {f"{name} {a}": n for name, one in found.items() for a, n in one.unknown_labels.items()}
        accuracy = self.accuracy
        return LabelingScores(
            is_spans=False, accuracy=accuracy, precision=accuracy, recall=accuracy, f1=accuracy,
            macro_f1=macro_f1(per_label), tokens=self.sums[1], sentences=self.size, per_label=per_label,
            confusion=sorted(wrong, key=lambda confusion: (-confusion[2], confusion))[:CONFUSIONS],
            unknown_labels=unknown, pairs=Counter(), misaligned=sum(one.misaligned for one in found.values()),
            first_misaligned=next((one.first_misaligned for one in found.values() if one.misaligned), ""),
        )  # fmt: skip
