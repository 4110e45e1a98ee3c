"""The numbers of labeled sentences: lengths, labels, spans, columns, and where the labels break their scheme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import NamedTuple, get_args

from ensue.data.detection.kind import Taken
from ensue.data.sentences.columns import ColumnLines
from ensue.data.sentences.sentence import Sentence
from ensue.data.sentences.source import SentenceSource
from ensue.data.sentences.span_borders import SpanBorders
from ensue.data.survey.counts import FileLine, LabeledSummary, Lengths, fill
from ensue.errors import DataError
from ensue.text.scheme_detection import SchemeDetector
from ensue.text.schemes import OUTSIDE, Scheme, is_legal, spans

SPLITTER = "treebank"
"""The splitter of the recipes of taggers."""


class Slips(NamedTuple):
    """The number of sentences that break the scheme, and the place and kind of the first mistake."""

    sentences: int
    first: FileLine
    reason: str


@dataclass
class SentenceSummary(LabeledSummary):
    """`words_column` and `labels_column` (empty without labels) as the format names them; `width`: how many columns."""

    words_column: str = ""
    labels_column: str = ""
    width: int = 0
    has_keys: bool = False
    num_documents: int = 0
    scheme: Scheme | None = None
    is_mixed: bool = False
    """Whether the labels follow no one scheme; then `scheme` is None, as it is for plain labels."""
    slips: Slips | None = None
    span_lengths: dict[str, Lengths] = field(default_factory=dict)
    """By class, in words; empty where the labels have no scheme."""
    borders: SpanBorders | None = None
    """Where spans of characters begin and end."""


def survey_sentences(taken: Taken, location: str, words: str, labels: str, encoding: str) -> SentenceSummary:
    """Counts all sentences, or those before the first wrong line, which is the summary's `error`."""
    return _Survey(taken, location, words, labels, encoding).summary


class _Survey:
    """Adds sentences one by one to a `SentenceSummary`."""

    def __init__(self, taken: Taken, location: str, words: str, labels: str, encoding: str) -> None:
        source = SentenceSource(
            location, format=taken.format, encoding=encoding, words=words or None, splitter=SPLITTER
        )
        self.format, self.asked = source.format, labels
        self.summary = SentenceSummary(taken, location, encoding, len(source.files), has_keys=source.format.has_keys)
        self.summary.borders = self.borders = SpanBorders(source.format, [labels or None])
        self.detector = SchemeDetector()
        self.path, self.document = "", -1
        self.first_slips: dict[Scheme, FileLine] = {}
        fill(self.summary, source, self.feed, "sentence")
        self.finish()

    def feed(self, sentence: Sentence) -> None:
        summary, path = self.summary, sentence.source.name
        if path != self.path:
            self.path, self.document = path, -1
        if not sentence.words:
            summary.size += 1
            summary.add_empty(path, sentence.line)
            return
        if not summary.words:
            self.begin(sentence)
        labels = self.format.labels(sentence, self.asked or None) if summary.is_labeled else ()
        summary.size += 1
        document = sentence.document or 0
        summary.num_documents += document != self.document
        self.document = document
        summary.add_words([sentence.words], sum(map(len, sentence.words)))
        summary.repeats.feed(sentence.words, labels)
        read = {summary.words_column, summary.labels_column}
        names = self.format.names or sentence.columns
        summary.columns.feed(sentence.columns, (name for name in names if name not in read))
        if summary.is_labeled:
            self.feed_labels(sentence, labels)

    def begin(self, sentence: Sentence) -> None:
        """Sets what the first sentence with words shows of all: the columns and their number."""
        summary, names = self.summary, list(sentence.columns)
        if isinstance(sentence.source, ColumnLines):
            summary.width = sentence.source.width
        summary.words_column, default = self.format.shown_columns(names)
        try:
            self.format.labels(sentence, self.asked or None)
        except DataError:
            if self.asked:
                raise
            summary.is_labeled = False
            return
        summary.labels_column = str(summary.width) if (self.asked or default) == "last" else self.asked or default

    def feed_labels(self, sentence: Sentence, labels: Sequence[str]) -> None:
        self.summary.labels.update(labels)
        self.borders.feed(sentence)
        self.detector.feed(labels, sentence.line)
        for scheme in get_args(Scheme):
            if scheme not in self.first_slips and self.detector.breaks(scheme):
                self.first_slips[scheme] = _slip(sentence, labels, scheme)
        for span in spans(labels):
            self.summary.span_lengths.setdefault(span.label, Lengths()).add(span.end - span.start)

    def finish(self) -> None:
        summary = self.summary
        summary.characters = set(chain.from_iterable(summary.words))
        for name in ("feats", "misc"):
            summary.columns.add_keys(name)
        try:
            summary.scheme = self.detector.result(self.path if summary.num_files == 1 else None)
        except DataError as error:
            summary.is_mixed, summary.error = True, summary.error or error
        if summary.scheme is None:
            summary.span_lengths = {}
        elif breaks := self.detector.breaks(summary.scheme):
            summary.slips = Slips(breaks.sentences, self.first_slips[summary.scheme], breaks.reason)


def _slip(sentence: Sentence, labels: Sequence[str], scheme: Scheme) -> FileLine:
    """The line where a sentence breaks the scheme: that of the word if it has one of its own, else the sentence's."""
    pairs = enumerate(pairwise([OUTSIDE, *labels, OUTSIDE]))
    index = next(index for index, (before, label) in pairs if not is_legal(scheme, before, label))
    has_rows = isinstance(sentence.source, ColumnLines)
    return FileLine(sentence.source.name, sentence.line + min(index, len(labels) - 1) * has_rows)
