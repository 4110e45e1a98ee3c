"""Errors by kind, precision and recall by the threshold on the probability, and the threshold for a precision.

Labels are compared as spans of words. A plain label is a span of one word, the label of a text a span of all words.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from rich.text import Text

from ensue.console.tables import table_of
from ensue.data.files import Data, as_location, join_locations
from ensue.data.sentences.conllu import EMPTY_FIELD
from ensue.errors import EnsueError, check_fraction
from ensue.metrics.classification import ClassificationScores, count_by_threshold
from ensue.metrics.confusion import LabelScore
from ensue.metrics.labeling import LabelingScores
from ensue.notices import warn_once
from ensue.outputs import atomic_output, check_outputs, row_format, row_lines, write_text
from ensue.runs.pictures import LINE_COLORS, picture
from ensue.tasks.classification import task as classification
from ensue.tasks.classification.pipeline import ClassificationPipeline, LabelsOfDocument
from ensue.tasks.contract.pipeline import reading_as_in_training
from ensue.tasks.labeling import task as labeling
from ensue.tasks.labeling.pipeline import LabelingPipeline, LabelsOfSentence
from ensue.tasks.labeling.tagged_sentence import Confidence
from ensue.text.label_columns import LabelColumns, TaggerLabels
from ensue.text.labels import Classes
from ensue.text.schemes import Span

KINDS = ("class", "boundary", "boundary and class", "missed", "spurious")
NUM_CONTEXT_WORDS = 8
"""The number of words before and after an error."""
WORD_COLUMNS = ("place", "word", "right", "predicted", "before", "after")


class LabelError(NamedTuple):
    """An error of one of the `KINDS`. A missed span has no prediction, and a spurious span has no gold label."""

    kind: str
    place: str
    """The file and the line of the sentence or text."""
    label: str
    text: str
    probability: float | None
    """The model's probability of the gold span, which has the label `label` and the text `text`."""
    predicted_label: str
    predicted_text: str
    predicted_probability: float | None
    before: str
    after: str


class ThresholdScores(NamedTuple):
    """Precision, recall and F1 if predictions whose probability is below a threshold are left out."""

    threshold: float
    precision: float
    recall: float
    f1: float

    def __str__(self) -> str:
        """Return a line for a terminal."""
        scores = f"precision {self.precision:.2%}, recall {self.recall:.2%}, F1 {self.f1:.2%}"
        return f"--at-least {self.threshold}: {scores}"


def compute_curve(probabilities: Sequence[float], correct: Sequence[bool], gold: int) -> list[ThresholdScores]:
    """Return the scores for each distinct probability of N predictions. `gold` is the number of gold labels."""
    columns = count_by_threshold(np.array(probabilities, np.float64), np.array(correct, bool))
    counts = reversed([*zip(*(column.tolist() for column in columns), strict=True)])
    scored = ((threshold, LabelScore.of(hits, gold, predicted)) for threshold, predicted, hits in counts)
    return [ThresholdScores(threshold, score.precision, score.recall, score.f1) for threshold, score in scored]


def smallest_threshold(curve: Sequence[ThresholdScores], precision: float) -> ThresholdScores | None:
    """Return the scores at the smallest threshold with at least this precision; None without such a threshold.

    The threshold is a number with few digits between two probabilities, or 0 if all predictions are kept.
    """
    low = -1.0
    for row in curve:
        if row.precision >= precision:
            middles = (round((low + row.threshold) / 2, digits) for digits in range(18))
            middle = next((middle for middle in middles if low < middle < row.threshold), row.threshold)
            return row._replace(threshold=middle if low >= 0 else 0.0)
        low = row.threshold
    return None


def _draw(curve: Sequence[ThresholdScores], path: Path) -> None:
    with picture(path, (7.2, 4.2)) as figure:
        axes = figure.add_subplot()
        axes.set(xlabel="minimum probability", ylabel="score", ylim=(0, 1.02))
        axes.grid(alpha=0.25)
        for column, (name, color) in enumerate(zip(("precision", "recall", "F1"), LINE_COLORS, strict=False), 1):
            axes.step([row.threshold for row in curve], [row[column] for row in curve], color=color, label=name)
        axes.legend(frameon=False)


def find_errors(
    gold: Sequence[Span], predicted: Collection[Span], misaligned: Collection[Span] = (), *, is_paired: bool = True
) -> Iterator[tuple[str, Span | None, Span | None]]:
    """Yield the errors of a sentence: the kind, the gold span and the predicted span.

    If `is_paired`, a gold span and a predicted span with a common word are paired into one error: first spans with the
    same boundaries, then spans of the same class, then others. Among these, spans with more common words come first.
    Spans without a pair are missed or spurious. `misaligned` are gold spans that begin or end inside of a word, so no
    prediction has their boundaries.
    """

    def kind(gold: Span, guess: Span) -> str:
        same = {"boundary": gold[1:] == guess[1:] and gold not in misaligned, "class": gold.label == guess.label}
        return " and ".join(name for name, is_same in same.items() if not is_same)

    correct = {*gold} & {*predicted} - {*misaligned}
    wrong, guesses = (dict(enumerate(span for span in spans if span not in correct)) for spans in (gold, predicted))
    candidates = sorted(
        (KINDS.index(kind(span, guess)), max(span.start, guess.start) - min(span.end, guess.end), i, j)
        for i, span in wrong.items()
        for j, guess in guesses.items()
        if is_paired and max(span.start, guess.start) < min(span.end, guess.end)
    )
    for rank, _, i, j in candidates:
        if i in wrong and j in guesses:
            yield KINDS[rank], wrong.pop(i), guesses.pop(j)
    yield from (("missed", span, None) for span in wrong.values())
    yield from (("spurious", None, span) for span in guesses.values())


class _ComparedSpans(NamedTuple):
    """The gold and the predicted spans of a sentence or text, and probabilities of spans."""

    place: str
    words: Sequence[str]
    gold: Sequence[Span] = ()
    predicted: Mapping[Span, float] = MappingProxyType({})
    probabilities: Mapping[Span, float] = MappingProxyType({})
    misaligned: Sequence[Span] = ()
    is_paired: bool = True

    def error(self, kind: str, *pair: Span | None) -> LabelError:
        cells: list[Any] = []
        for span, probabilities in zip(pair, (self.probabilities, self.predicted), strict=True):
            text = " ".join(self.words[span.start : span.end]) if span else ""
            cells += [span.label, text, round(probabilities.get(span, 0.0), 6)] if span else ["", "", None]
        starts, ends = zip(*(span[1:] for span in pair if span), strict=True)
        return LabelError._make([kind, self.place, *cells, *self.context(min(starts), max(ends))])

    def context(self, start: int, end: int) -> tuple[str, str]:
        before, after = self.words[max(0, start - NUM_CONTEXT_WORDS) : start], self.words[end : end + NUM_CONTEXT_WORDS]
        return " ".join(before), " ".join(after)


@dataclass(frozen=True)
class Report:
    """The scores of a model, its errors, and precision and recall by threshold."""

    scores: ClassificationScores | LabelingScores
    errors: Sequence[LabelError]
    curve: Sequence[ThresholdScores]
    """The scores for each distinct probability of a prediction, in ascending order."""
    chosen: ThresholdScores | None = None
    """The scores at the smallest threshold with the precision `at_precision`."""

    def counts(self) -> dict[str, Counter[str]]:
        """Return the number of errors of each kind, by gold label, or by predicted label for spurious spans."""
        counts: dict[str, Counter[str]] = {}
        for label, kind in sorted((error.label or error.predicted_label, error.kind) for error in self.errors):
            counts.setdefault(label, Counter())[kind] += 1
        return counts

    def as_json(self) -> dict[str, Any]:
        """Return counts of errors, and the chosen threshold, as JSON values."""
        return {"errors": self.counts(), **({"at_precision": self.chosen._asdict()} if self.chosen else {})}

    def tables(self) -> Iterator[Any]:
        """Yield a table of errors by label and kind (confusions for a tagger with plain labels), and `chosen`."""
        total = Counter(error.kind for error in self.errors)
        kinds = [kind for kind in KINDS if total[kind]]
        table = table_of("errors", right=kinds, overflow="fold")
        counts = [*self.counts().items(), ("all", total)]
        rows: Sequence[Any] = [(label, *(row[kind] for kind in kinds)) for label, row in counts]
        if isinstance(self.scores, LabelingScores) and not self.scores.is_spans:
            table, rows = table_of("right", "predicted", right=["words"], overflow="fold"), self.scores.confusion
        for row in rows:
            table.add_row(*(Text(cell) if isinstance(cell, str) else f"{cell:,}" for cell in row))
        yield table if any(row[1:] for row in rows) else "no errors"
        if self.chosen:
            yield str(self.chosen)


@reading_as_in_training
def report(
    pipeline: Any, data: Data, *, format: str | None = None, encoding: str = "utf-8", errors: str | Path | None = None,
    curve: str | Path | None = None, at_precision: float | None = None, overwrite: bool = False,
) -> Report:  # fmt: skip
    """Return the scores of a tagger or classifier, its errors by kind, and precision and recall by threshold.

    Args:
        pipeline: The model.
        data: Labeled data.
        format: The format of the data; None: detected.
        encoding: The encoding of the data.
        errors: A file for the errors (.csv, .jsonl). With the suffix .tsv, a tagger writes words with a wrong label.
        curve: A file for the curve: a picture (.svg, .png) or a table (.csv, .jsonl, .tsv).
        at_precision: The smallest threshold with at least this precision is chosen.
        overwrite: Whether existing files may be replaced.

    Raises:
        EnsueError: A file cannot be written, is an input, or exists; or, after writing, no threshold has the precision.
    """
    outputs = [Path(file) for file in (errors, curve) if file is not None]
    data, run = as_location(data, "the data"), pipeline.run
    check_outputs([data, run or ""], files=outputs, overwrite=overwrite)
    if type(pipeline) not in _TASKS:
        raise EnsueError(f"{run or 'the model'}: expected a tagger of words or a classifier")
    check_fraction("at_precision", at_precision or 0)
    by_word = isinstance(pipeline, LabelingPipeline) and errors is not None and row_format(errors) == "tsv"
    if isinstance(pipeline.labels, LabelColumns) and (not by_word or curve is not None or at_precision is not None):
        raise EnsueError(f"{run}: a tagger of several columns; expected one column, or --errors FILE.tsv alone")
    is_picture = curve is not None and Path(curve).suffix.lower() in (".svg", ".png")
    for file in (errors, None if is_picture else curve):
        if file is not None:
            row_format(file)  # raises EnsueError for another suffix
    label_errors: list[LabelError] = []
    wrong_words: list[tuple[str, ...]] = []
    probabilities: list[float] = []
    correct: list[bool] = []
    compare, tally_of = _TASKS[type(pipeline)]
    num_gold, tally = 0, tally_of(pipeline.labels)
    for answer, pair in pipeline.label_pairs(data, format, encoding):
        tally.add(*pair)
        text = compare(pipeline.labels, answer, pair)
        triples = list(find_errors(text.gold, text.predicted, text.misaligned, is_paired=text.is_paired))
        label_errors += [text.error(*triple) for triple in triples]
        wrong = {predicted for *_, predicted in triples}
        probabilities += text.predicted.values()
        correct += [span not in wrong for span in text.predicted]
        num_gold += len(text.gold)
        wrong_words += _find_wrong_words(text, pair) if by_word else ()
    scored = compute_curve(probabilities, correct, num_gold)
    chosen_scores = None if at_precision is None else smallest_threshold(scored, at_precision)
    if errors is not None:
        _write(errors, *((WORD_COLUMNS, wrong_words) if by_word else (LabelError._fields, label_errors)))
    if curve is not None and is_picture:
        with atomic_output(curve) as partial:
            _draw(scored, partial)
    elif curve is not None:
        _write(curve, ThresholdScores._fields, scored)
    if at_precision is not None and chosen_scores is None:
        best = max(scored, key=lambda row: row[1:3], default=ThresholdScores(0, 0, 0, 0))
        raise EnsueError(
            f"{join_locations(data)}: no threshold has a precision of {at_precision:.2%}; the highest precision is "
            f"{best.precision:.2%}, at a recall of {best.recall:.2%}"
        )
    return Report(tally.scores(), label_errors, scored, chosen_scores)


def with_precision(pipeline: Any, precision: float, *, on: Data) -> Any:
    """Return a copy of a tagger or classifier with the smallest `at_least` that has this precision on labeled data.

    A notice has the threshold, its precision and its recall. Raise EnsueError if no threshold has the precision.
    """
    chosen_scores = report(pipeline, on, at_precision=precision).chosen
    assert chosen_scores is not None
    warn_once(f"precision {on} {chosen_scores}", f"{join_locations(as_location(on))}: {chosen_scores}")
    return pipeline.with_search(at_least=max(chosen_scores.threshold, pipeline.at_least))


def _match_text(labels: Classes, answer: LabelsOfDocument, pair: Any) -> _ComparedSpans:
    document, names, probabilities, _ = answer
    by_span = {Span(name, 0, 1): value for name, value in zip(labels.names, probabilities.tolist(), strict=True)}
    gold, predicted = ([Span(label, 0, 1) for label in dict.fromkeys(each)] for each in (document.labels, names))
    place, words = f"{document.path}:{document.line}", [" | ".join(document.texts)]
    scored = {span: by_span[span] for span in predicted}
    return _ComparedSpans(place, words, gold, scored, by_span, is_paired=not labels.multiple)


def _match_words(labels: TaggerLabels, answer: LabelsOfSentence, pair: labeling.LabelPair) -> _ComparedSpans:
    words, confidence, posterior = answer.sentence.words, answer.confidence, answer.posterior
    if isinstance(labels, LabelColumns) or confidence is None or posterior is None:
        return _ComparedSpans(pair.place, words)

    def spans(tags: Sequence[str], confidence: Confidence) -> dict[Span, float]:
        if labels.has_spans:
            return dict(zip(labels.spans(tags), confidence.spans, strict=True))
        return {Span(tag, n, n + 1): value for n, (tag, value) in enumerate(zip(tags, confidence.labels, strict=True))}

    by_span = spans(pair.gold, Confidence.of(labels, pair.gold, posterior, words))
    misaligned = pair.misaligned.get("", ())
    gold = [*(span for span in by_span if span not in misaligned), *misaligned]
    predicted = spans(answer.labels, confidence)
    if not labels.has_spans and EMPTY_FIELD not in labels.names:  # marks words below `at_least`
        predicted = {span: value for span, value in predicted.items() if span.label != EMPTY_FIELD}
    return _ComparedSpans(pair.place, words, gold, predicted, by_span, misaligned)


_TASKS: dict[type, tuple[Callable[..., _ComparedSpans], Callable[..., Any]]] = {
    ClassificationPipeline: (_match_text, classification.tally_of), LabelingPipeline: (_match_words, labeling.tally_of),
}  # fmt: skip
"""By class of pipelines: a function that compares spans, and a function that returns a tally."""


def _find_wrong_words(text: _ComparedSpans, sentence: labeling.LabelPair) -> Iterator[tuple[str, ...]]:
    for index, pair in enumerate(zip(sentence.gold, sentence.predicted, strict=True)):
        if pair[0] != pair[1]:
            labels = (label if isinstance(label, str) else " ".join(label) for label in pair)
            yield sentence.place, text.words[index], *labels, *text.context(index, index + 1)


def _write(path: str | Path, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    by_name = (dict(zip(columns, row, strict=True)) for row in rows)
    write_text(path, "".join(row_lines(row_format(path), by_name, columns)))
