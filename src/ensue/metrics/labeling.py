"""Scores of sequence labeling: accuracy of tokens, and precision, recall and F1 of spans or labels."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq
from types import MappingProxyType
from typing import Any

from ensue.metrics.confusion import LabelsScores, Tally, macro_f1
from ensue.metrics.scores import card_columns
from ensue.text.label_columns import LabelColumns
from ensue.text.schemes import Span, position, spans

NUM_CONFUSIONS = 20
SpanReader = Callable[[Sequence[str]], list[Span]]
"""A function from the labels of a sentence to its spans."""


@dataclass(frozen=True)
class LabelingScores(LabelsScores):
    """Scores and counts of a tagger.

    If `is_spans`, `precision`, `recall` and `f1` are computed from spans, and `per_label` has a key for each span
    class. Otherwise they are computed from tokens and equal the accuracy, and `per_label` has a key for each label.
    `confusion` has the most frequent confusions of labels of tokens. `misaligned` is the number of gold spans that
    begin or end inside a word, cannot be predicted and count as misses. The first such span is at `first_misaligned`.
    After cross-validation, `expected` is the estimated F1 or accuracy on unseen sentences after training on all data.
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
    """The number of tokens with each gold and predicted label."""
    misaligned: int = 0
    first_misaligned: str = ""
    expected: float = 0.0
    standard_error: float = 0.0
    """The standard error of `expected`."""

    def summary(self) -> str:
        score = f"{'F1' if self.is_spans else 'accuracy'} {100 * self.expected:.1f} ± {100 * self.standard_error:.1f}"
        return super().summary() + (f"; expected of the model of all sentences: {score}" if self.standard_error else "")

    def matrix(self) -> tuple[list[str], list[list[int]]]:
        """Return all labels of tokens, and the confusion matrix, which has a row for each gold label."""
        labels = sorted({label for pair in self.pairs for label in pair})
        return labels, [[self.pairs[gold, predicted] for predicted in labels] for gold in labels]

    def as_json(self) -> dict[str, Any]:
        optional = {name: getattr(self, name) for name in ("misaligned", "expected", "standard_error")}
        confusion = [dict(zip(("gold", "predicted", "count"), row, strict=True)) for row in self.confusion]
        return {**super().as_json(), "confusion": confusion, **{name: x for name, x in optional.items() if x}}

    @property
    def headline(self) -> tuple[str, float]:
        return ("F1", self.f1) if self.is_spans else ("macro F1", self.macro_f1)


SPANS_ON_CARD = card_columns(".2%", "accuracy", "precision", "recall", "f1")
LABELS_ON_CARD = card_columns(".2%", "accuracy", "macro_f1")
"""The scores on the card of taggers with and without spans."""


class LabelingTally(Tally[LabelingScores]):
    """A counter of sentences.

    With `spans`, precision, recall and F1 are those of conlleval: a predicted span is correct if a gold span has the
    same class, start and end. `read` reads spans from labels, without correcting invalid labels. Accuracy compares the
    gold and predicted labels of tokens in one scheme (`Labels.convert_scheme`). The model has the labels `known`.
    """

    def __init__(self, *, spans: bool, read: SpanReader = spans, known: Iterable[str] | None = None) -> None:
        super().__init__("f1" if spans else None)
        self.is_spans, self._read, self._known = spans, read, known
        self._misaligned, self._first = 0, ""

    def add(
        self, gold: Sequence[str], predicted: Sequence[str],
        misaligned: Mapping[str, Sequence[Span]] = MappingProxyType({}), place: str = "",
    ) -> tuple[int, ...]:  # fmt: skip
        """Count a sentence by its gold and predicted labels. The spans `misaligned[""]` count as misses."""
        assert len(gold) == len(predicted), f"{len(predicted)} labels for {len(gold)} tokens"
        missed = misaligned.get("", ())
        self._misaligned += len(missed)
        self._first = self._first or (place if missed else "")
        self.pairs.update(zip(gold, predicted, strict=True))
        matches = [label for label, prediction in zip(gold, predicted, strict=True) if label == prediction]
        if not self.is_spans:
            return self._count(len(matches), len(gold), matches, gold, predicted)
        gold_spans, predicted_spans = set(self._read(gold)) - {*missed}, self._read(predicted)
        correct = gold_spans & {*predicted_spans}
        labels = ([span.label for span in group] for group in (correct, (*gold_spans, *missed), predicted_spans))
        return self._count(len(matches), len(gold), *labels)

    def scores(self, known: Iterable[str] | None = None) -> LabelingScores:
        """Return the scores of all counted sentences. `known` are the labels of the model."""
        per_label, total = self.per_label, self.overall
        known = self._known if known is None else known
        if known is not None and self.is_spans:
            known = {position(tag).label for tag in known}
        confusion = [(gold, predicted, count) for (gold, predicted), count in self.pairs.items() if gold != predicted]
        confusion = sorted(confusion, key=lambda triple: (-triple[2], triple))[:NUM_CONFUSIONS]
        return LabelingScores(
            is_spans=self.is_spans, accuracy=self.accuracy, precision=total.precision, recall=total.recall,
            f1=total.f1, macro_f1=macro_f1(per_label), tokens=self.sums[1], sentences=self.size, per_label=per_label,
            confusion=confusion, unknown_labels={} if known is None else self.unknown(known), pairs=self.pairs,
            misaligned=self._misaligned, first_misaligned=self._first,
        )  # fmt: skip


class ColumnsTally(Tally[LabelingScores]):
    """A counter of sentences with several columns of labels.

    Accuracy, precision, recall and F1 are the share of words with correct labels in all columns. `per_label` has the
    scores of each column, and `macro_f1` is the mean F1 of the columns.
    """

    def __init__(self, labels: LabelColumns) -> None:
        super().__init__()
        self._columns = {
            name: LabelingTally(
                spans=any(head.labels.has_spans for head in heads),
                known=heads[0].labels.names if heads[0].kind == "label" else None,
            )
            for name, heads in labels.columns.items()
        }

    def add(
        self, gold: Sequence[tuple[str, ...]], predicted: Sequence[tuple[str, ...]],
        misaligned: Mapping[str, Sequence[Span]] = MappingProxyType({}), place: str = "",
    ) -> tuple[int, ...]:  # fmt: skip
        """Count a sentence by its gold and predicted labels. `misaligned` has spans that count as misses, by column."""
        for number, (name, tally) in enumerate(self._columns.items()):
            missed = {"": misaligned.get(name, ())}
            tally.add([row[number] for row in gold], [row[number] for row in predicted], missed, place)
        return self._count(sum(map(eq, gold, predicted)), len(gold), (), (), ())

    def scores(self) -> LabelingScores:
        scores = {name: tally.scores() for name, tally in self._columns.items()}
        per_label = {name: tally.overall for name, tally in self._columns.items()}
        wrong = [(f"{name} {a}", f"{name} {b}", n) for name, score in scores.items() for a, b, n in score.confusion]
        unknown = {f"{name} {a}": n for name, score in scores.items() for a, n in score.unknown_labels.items()}
        accuracy = self.accuracy
        return LabelingScores(
            is_spans=False, accuracy=accuracy, precision=accuracy, recall=accuracy, f1=accuracy,
            macro_f1=macro_f1(per_label), tokens=self.sums[1], sentences=self.size, per_label=per_label,
            confusion=sorted(wrong, key=lambda confusion: (-confusion[2], confusion))[:NUM_CONFUSIONS],
            unknown_labels=unknown, pairs=Counter(), misaligned=sum(score.misaligned for score in scores.values()),
            first_misaligned=next((score.first_misaligned for score in scores.values() if score.misaligned), ""),
        )  # fmt: skip
