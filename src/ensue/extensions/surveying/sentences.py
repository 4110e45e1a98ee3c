"""The summary and the report of labeled sentences."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

from rich.table import Table

from ensue.data.detection.kind import DetectedFormat
from ensue.data.sentences.columns import ColumnLines
from ensue.data.sentences.sentence import Sentence
from ensue.data.sentences.source import SentenceSource
from ensue.data.sentences.span_borders import SpanBorders
from ensue.errors import DataError, IncompleteError, OverlapError, list_names, pluralize
from ensue.extensions.surveying.counts import MAX_VALUES, FileLine, LabeledSummary, Lengths, fill
from ensue.extensions.surveying.report import MAX_ROWS, LabeledReport, add_counts, make_table, sort_by_frequency
from ensue.parsing import toml_value
from ensue.text.schemes import OUTSIDE, Scheme, SchemeDetector, is_legal, layers, overlapping_spans, spans

SPLITTER = "treebank"
"""The splitter in the recipes of taggers."""
MAX_LINEAR_SENTENCES = 1_000
"""The maximum number of sentences for which the recipe `tag-linear` is suggested."""
_KEY_PREFIXES = ("feats.", "misc.")
_MAX_SENTENCE_WORDS = 200
"""The length above which a single sentence is probably a file without blank lines."""
_SPAN_LIKE_LABEL = re.compile(r"[BI](?:[-_:.]\w+)?|\w+[-_:.][BI]|0")


@dataclass
class SentenceSummary(LabeledSummary):
    """The statistics of sentences."""

    words_column: str = ""
    labels_column: str = ""
    """The name of the column of labels; "" without labels."""
    width: int = 0
    """The number of columns; 0 for other formats than columns."""
    has_keys: bool = False
    num_documents: int = 0
    nested: bool = False
    """Whether spans overlap."""
    scheme: Scheme | None = None
    """The scheme of the labels; None for plain labels and for a mixture of schemes."""
    described_scheme: str = "plain (no spans)"
    span_lengths: dict[str, Lengths] = field(default_factory=dict)
    """The lengths of spans in words for each class; empty if the labels have no scheme."""
    borders: SpanBorders | None = None
    """A comparison of the borders of spans of characters with the borders of words."""


class SentenceSurvey:
    """The computation of the `summary` of all sentences before the first invalid line."""

    def __init__(
        self, detected: DetectedFormat, location: str, words: str, labels: str, encoding: str, *, nested: bool = False
    ) -> None:
        options: dict[str, Any] = {"words": words or None, "splitter": SPLITTER, "incomplete": "count"}
        source = SentenceSource(location, format=detected.format, encoding=encoding, nested=nested, **options)
        self.source = source
        self.format, self.labels_name = source.format, labels
        self.summary = SentenceSummary(detected, location, encoding, len(source.files), has_keys=source.format.has_keys)
        self.summary.nested = nested
        self.summary.borders = self.borders = SpanBorders(source.format, [labels or None])
        self.detector = SchemeDetector()
        self.path, self.document = "", -1
        self.first_errors: dict[Scheme, FileLine] = {}
        fill(self.summary, source, self.feed, "sentence")
        self.finish()

    def feed(self, sentence: Sentence) -> None:
        summary, path = self.summary, sentence.source.name
        if path != self.path:
            self.path, self.document = path, -1
        if not sentence.words:
            summary.size += 1
            summary.empty.add(path, sentence.line)
            return
        if not summary.words:
            self.begin(sentence)
        labels = self.format.labels(sentence, self.labels_name or None) if summary.is_labeled else ()
        if "" in labels:  # the first sentence is read before the column of labels is set
            self.source.skipped.add(IncompleteError("", path, sentence.line, missing="label"))
            return
        summary.size += 1
        summary.num_documents += (sentence.document or 0) != self.document
        self.document = sentence.document or 0
        summary.add_words([sentence.words], sum(map(len, sentence.words)), path, sentence.line)
        summary.repeats.feed(sentence.words, labels, path, sentence.line)
        names_read = {summary.words_column, summary.labels_column}
        names = self.format.names or sentence.columns
        summary.columns.feed(sentence.columns, (name for name in names if name not in names_read))
        if summary.is_labeled:
            self.feed_labels(sentence, labels)

    def begin(self, sentence: Sentence) -> None:
        """Set the columns of the summary by the first sentence with words."""
        summary, names = self.summary, list(sentence.columns)
        if isinstance(sentence.source, ColumnLines):
            summary.width = sentence.source.layout.width
        summary.words_column, default = self.format.shown_columns(names)
        try:
            self.format.labels(sentence, self.labels_name or None)
        except DataError:
            if self.labels_name:
                raise
            summary.is_labeled = False
            return
        self.source.labeled = [self.labels_name or None]
        name = self.labels_name or default
        summary.labels_column = str(summary.width) if name == "last" else name

    def feed_labels(self, sentence: Sentence, labels: Sequence[str]) -> None:
        self.summary.add_labels(labels, sentence.source.name, sentence.line)
        self.borders.feed(sentence)
        nested = self.summary.nested
        for tags in map(dict.values, layers(labels).values()) if nested else [labels]:
            self.detector.feed(tags, sentence.line)
        for scheme in self.detector.num_violating.keys() - self.first_errors.keys():
            self.first_errors[scheme] = _locate_error(sentence, labels, scheme)
        for span in (overlapping_spans if nested else spans)(labels):
            self.summary.span_lengths.setdefault(span.label, Lengths()).add(span.end - span.start)

    def finish(self) -> None:
        summary = self.summary
        summary.characters = set(chain.from_iterable(summary.words))
        for name in ("feats", "misc"):
            summary.columns.add_keys(name)
        try:
            summary.scheme = self.detector.result(self.path if summary.num_files == 1 else None)
        except OverlapError:
            raise
        except DataError as error:
            summary.described_scheme, summary.error = "mixed", summary.error or error
        if summary.scheme is None:
            summary.span_lengths = {}
            return
        summary.described_scheme = summary.scheme
        if errors := self.detector.violations(summary.scheme):
            broken = pluralize(errors.sentences, "sentence breaks it", "sentences break it")
            summary.described_scheme += f"; {broken}, the first at {self.first_errors[summary.scheme]}: {errors.reason}"


def _locate_error(sentence: Sentence, labels: Sequence[str], scheme: Scheme) -> FileLine:
    """Return the line of the first word that violates the scheme; the line of the sentence if words have no lines."""
    pairs = enumerate(pairwise([OUTSIDE, *labels, OUTSIDE]))
    index = next((index for index, (before, label) in pairs if not is_legal(scheme, before, label)), 0)
    has_rows = isinstance(sentence.source, ColumnLines)
    return FileLine(sentence.source.name, sentence.line + min(index, len(labels) - 1) * has_rows)


class SentenceReport(LabeledReport[SentenceSummary]):
    """The report on labeled sentences."""

    unit, labeled_noun = "sentence", "word"
    outlier_remedy = "a blank line ends a sentence"

    def classes(self) -> Counter[str]:
        return Counter({label: len(lengths) for label, lengths in self.summary.span_lengths.items()})

    def facts(self) -> Iterator[tuple[str, str]]:
        summary = self.summary
        kind = "labeled sentences" if summary.is_labeled else "sentences without labels"
        yield "taken for", f"{summary.detected.format}: {kind} ({summary.detected.reason})"
        if not summary.size:
            return
        yield "read as", f"words: {self._describe_column(summary.words_column)}, labels: {self._describe_labels()}"
        if summary.is_labeled:
            yield "scheme", summary.described_scheme
        yield "sentences", f"{summary.size:,}"
        if summary.num_documents > summary.num_files:
            yield "documents", f"{summary.num_documents:,}"
        yield from self.text_size_rows()

    def tables(self) -> Iterator[Table]:
        yield from super().tables()
        if spans := self.summary.span_lengths:
            table = make_table("spans of", "spans", "share", "words on average", "longest")
            counts = Counter({name: len(lengths) for name, lengths in spans.items()})
            add_counts(
                table, counts, counts.total(), lambda name: (f"{spans[name].mean:.2f}", f"{spans[name].quantile(1):,}")
            )
            yield table
        if self.summary.columns.counts:
            yield self._column_table()

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        span_like = sorted(filter(_SPAN_LIKE_LABEL.fullmatch, self.summary.labels))
        if self.summary.scheme is None and any("B" in label for label in span_like):
            yield f"plain labels that look like spans: {list_names(span_like)}; spans are written B-PER, I-PER and O"
        if self.summary.size == 1 and self.summary.words.total() > _MAX_SENTENCE_WORDS:
            yield f"all {self.summary.words.total():,} words are one sentence; {self.outlier_remedy}"
        if self.summary.width > 2 and all(map(str.isdecimal, self.summary.words)):
            yield "all words are numbers; if these are positions, --words 2 --labels 3 reads the next columns"
        if self.summary.borders and (note := self.summary.borders.note()):
            yield note

    def recipe(self) -> tuple[str, str, str]:
        if self.summary.nested:
            return "tag-nested", "tagger", "spans overlap"
        if self.summary.size <= MAX_LINEAR_SENTENCES:
            return "tag-linear", "tagger", f"there are at most {MAX_LINEAR_SENTENCES:,} sentences"
        if self.summary.scheme:
            return "tag-lstm-crf", "tagger", "the labels are spans"
        return "tag-lstm", "tagger", "each word has a label, without spans"

    def settings(self) -> Iterator[str]:
        yield from super().settings()
        for key in ("words", "labels"):
            if name := self.columns.get(key):
                yield f"data.{key}={toml_value(name)}"

    @property
    def splitter(self) -> str:  # type: ignore[override]
        reason = self.summary.borders.reason if self.summary.borders else None
        return reason.splitter if reason else ""

    def _describe_column(self, name: str) -> str:
        if self.summary.has_keys:
            return f'"{name}"'
        return f"column {name}" if self.summary.width else name

    def _describe_labels(self) -> str:
        summary = self.summary
        if not summary.is_labeled:
            return "none"
        last = " (last)" if summary.width and summary.labels_column == str(summary.width) else ""
        return self._describe_column(summary.labels_column) + last

    def _column_table(self) -> Table:
        table = make_table("other columns", "distinct values", "most frequent", left=2)
        columns = self.summary.columns.counts
        names = [name for name in columns if self.summary.has_keys or not name.startswith(_KEY_PREFIXES)]
        for name in names[:MAX_ROWS]:
            number = f"over {MAX_VALUES:,}" if len(columns[name]) > MAX_VALUES else f"{len(columns[name]):,}"
            values = [value for value, _ in sort_by_frequency(columns[name])]
            table.add_row(self._describe_column(name), number, list_names(values))
        if len(names) > MAX_ROWS:
            table.add_row(f"and {len(names) - MAX_ROWS:,} more")
        for prefix in _KEY_PREFIXES:
            keys = [name for name in columns if name not in names and name.startswith(prefix)]
            if keys:
                order = sort_by_frequency(Counter({name: columns[name].total() for name in keys}))
                entries = [f"{name.removeprefix(prefix)} ({len(columns[name]):,})" for name, _ in order]
                table.add_row(f"{prefix}KEY", f"{len(keys):,} keys", list_names(entries))
        return table
