"""The summary and the report of labeled texts."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from rich.table import Table

from ensue.data.decoding import check_encoding
from ensue.data.detection.format_table import CLASS_FILES, FOLDERS, first_lines
from ensue.data.detection.kind import DetectedFormat
from ensue.data.detection.locations import class_files
from ensue.data.examples import Document, DocumentLayout, DocumentSource
from ensue.data.examples.document_columns import FlagsError
from ensue.data.examples.formats import DOCUMENT_FORMATS
from ensue.data.examples.layout import DocumentChoice
from ensue.data.examples.record_formats import RecordDocuments
from ensue.data.files import files_of
from ensue.data.records.tables import TABLES, Dialect
from ensue.data.vectors import propose_vectors
from ensue.errors import DataError, pluralize
from ensue.extensions.surveying.counts import ColumnValues, LabeledSummary, Lengths, fill
from ensue.extensions.surveying.oddities import is_null
from ensue.extensions.surveying.report import MAX_ROWS, LabeledReport, display_name, make_table
from ensue.parsing import ParseError, parse_json, toml_value
from ensue.text.tokens import tokens

SPLITTER = "simple"
"""The splitter in the recipes of classifiers."""
MAX_LINEAR_TEXTS = 3_000
"""The maximum number of texts or pairs for which the recipe `classify-linear` is suggested."""
_MIN_WORDS, _MIN_DISTINCT_SHARE = 100, 0.9
"""The minimum number of words, and the minimum share of distinct words, to propose characters as tokens."""
_ANSWER = "answer"
"""The key of Prodigy for the decision of the annotator whether the text has the label."""
_UNSPACED_SCRIPT = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]{5}")
"""Matches five consecutive letters of Thai, Lao, Burmese, Khmer, Chinese or Japanese, which are more than a word."""
_DESCRIPTIONS = {
    "fasttext": "labels: the words with __label__",
    "first-word": "label: the first word of a line, text: the rest",
    CLASS_FILES: "label: the name of the file, text: a line of it",
    FOLDERS: "label: the name of the folder, text: a file in it",
}


@dataclass
class DocumentSummary(LabeledSummary):
    """The statistics of labeled texts. `columns` has all columns or JSON keys of the first rows."""

    layout: DocumentLayout = field(default_factory=lambda: DocumentLayout(""))
    labels_per_text: Lengths = field(default_factory=Lengths)
    proposed_labels: str = ""
    """The column of labels, or comma-separated indicator columns, that training would not detect."""


def survey_documents(
    detected: DetectedFormat, location: str, words: str, labels: str, encoding: str
) -> DocumentSummary:
    """Return the summary of all texts before the first invalid line. `words` may name columns separated by commas."""
    texts = tuple(filter(None, words.split(",")))
    choice = DocumentChoice(texts, labels, joined=len(texts) > 2)
    summary = DocumentSummary(detected, location, encoding, columns=_first_columns(detected, location, encoding))
    if detected.format != FOLDERS:
        paths = files_of(location)
        summary.num_files = len(class_files(paths) if detected.format == CLASS_FILES else paths)
    source: DocumentSource | None = None
    try:
        source = DocumentSource(location, choice, format=detected.format, encoding=encoding, incomplete="count")
    except FlagsError as error:
        return replace(survey_documents(detected, location, words, error.names, encoding), proposed_labels=error.names)
    except DataError as error:
        summary.is_labeled, summary.error = False, error
        with suppress(DataError):
            unlabeled = replace(choice, is_labeled=False)
            source = DocumentSource(location, unlabeled, format=detected.format, encoding=encoding)
    if source is None:
        return summary
    layout, counts = source.layout, summary.columns.counts
    has_constant_label = layout.labels is not None and len(counts.get(layout.labels.name, ())) == 1
    if not labels and has_constant_label and {"accept", "reject"} <= counts.get(_ANSWER, {}).keys():
        return replace(survey_documents(detected, location, words, _ANSWER, encoding), proposed_labels=_ANSWER)
    summary.layout = layout
    if summary.error and not labels and len(layout.texts) == len(summary.columns.counts) > 0:
        summary.error = None  # unlabeled texts are valid
    fill(summary, source, partial(_feed_document, summary), "text")
    summary.characters = set(chain.from_iterable(summary.words))
    return summary


def _feed_document(summary: DocumentSummary, document: Document) -> None:
    summary.size += 1
    if summary.layout.format == FOLDERS:
        summary.num_files = summary.size
    words = [[token.text for token in tokens(text, SPLITTER)] for text in document.texts]
    place = document.path, document.line
    summary.add_words(words, sum(map(len, document.texts)), *place)
    if document.is_empty:
        summary.empty.add(*place)
    if any(map(is_null, document.texts)):
        summary.null_texts.add(*place)
    if summary.is_labeled:
        summary.add_labels(document.labels, *place)
        summary.labels_per_text.add(len(document.labels))
    summary.repeats.feed(document.texts, document.labels, *place)


def _first_columns(detected: DetectedFormat, location: str, encoding: str) -> ColumnValues:
    values = ColumnValues()
    if detected.format == FOLDERS:
        return values
    path = files_of(location)[0]
    lines = first_lines(path, encoding=check_encoding(encoding))
    with suppress(DataError):  # reading the complete file raises the error again
        for cells in _parse_cells(detected.format, lines, str(path)):
            values.feed(cells, cells)
    return values


def _parse_cells(format: str, lines: Sequence[str], name: str) -> Iterator[dict[str, list[str]]]:
    documents = DOCUMENT_FORMATS[format]
    if not isinstance(documents, RecordDocuments):
        return
    if isinstance(table := documents.reader, Dialect):
        for row in table.rows_of_file(enumerate(lines, 1), name):
            yield {str(number): [table.value(field)] for number, field in enumerate(row.values, 1)}
        return
    for line in lines:
        with suppress(ParseError):
            record = parse_json(line)
            if isinstance(record, dict):
                yield {key: [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)]
                       for key, value in record.items()}  # fmt: skip


class DocumentReport(LabeledReport[DocumentSummary]):
    """The report on labeled texts."""

    unit = labeled_noun = "text"
    outlier_remedy = "--set data.max_tokens={} truncates it"

    def facts(self) -> Iterator[tuple[str, str]]:
        summary, layout = self.summary, self.summary.layout
        kind = "labeled texts" if summary.is_labeled else "texts"
        header = " with a header" if layout.header else ""
        yield "taken for", f"{summary.detected.format}{header}: {kind} ({summary.detected.reason})"
        if not summary.size:
            return
        yield "read as", _DESCRIPTIONS.get(layout.format) or self._describe_columns()
        yield "pairs" if len(summary.lengths) > 1 else "texts", f"{summary.size:,}"
        counts = summary.labels_per_text
        if summary.is_labeled and set(counts.counts) != {1}:
            yield "labels per text", f"{counts.quantile(0)} to {counts.quantile(1)}, {counts.mean:.2f} on average"
        yield from self.text_size_rows()

    def tables(self) -> Iterator[Table]:
        """Yield the tables, and a table of the columns that are not read."""
        yield from super().tables()
        summary, columns, layout = self.summary, self.summary.columns.counts, self.summary.layout
        is_unclear = summary.error is not None and not summary.is_labeled
        columns_read = [
            column for column in (layout.labels, *layout.flags, *layout.texts) if column is not None and not is_unclear
        ]
        names_read = {str(column.number) if column.number else column.name for column in columns_read}
        names = [name for name in columns if name not in names_read]
        if not names:
            return
        num_rows = max(counts.total() for counts in columns.values()) - layout.header
        kind = "columns" if is_unclear else "other columns"
        table = make_table(kind, f"distinct in {pluralize(num_rows, 'row')}", "first row", left=2)
        for name in names[:MAX_ROWS]:
            cells = list(columns[name])
            title = f"column {name}" if summary.detected.format in TABLES else f'"{display_name(name)}"'
            title += f' "{display_name(cells[0])}"' if layout.header else ""
            values = cells[layout.header :]
            table.add_row(title, f"{len(values):,}", display_name(values[0]) if values else "")
        if len(names) > MAX_ROWS:
            table.add_row(f"and {len(names) - MAX_ROWS:,} more")
        yield table

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if not self.summary.is_labeled:
            return
        if len(self.summary.lengths) == 2:
            yield "the texts are a pair; --set data.joined=true trains on both as one text"
        labels, layout = self.summary.labels, self.summary.layout
        rare = [label for label, count in labels.items() if count == 1]
        if layout.labels and 2 * len(rare) >= len(labels) and sum(s.count(" ") for s in rare) > 2 * len(rare):
            names = [shlex.quote(column.name or str(column.number)) for column in (layout.texts[0], layout.labels)]
            yield f"most labels are texts that occur once; --sources {names[0]} --targets {names[1]} reads pairs"
        if self.splitter:
            reason = "texts have no blanks" if self._lacks_spaces() else "nearly all words are distinct"
            yield f"{reason}; data.splitter=characters splits texts into characters"
        if self.recipe()[0] == "classify-linear":
            yield from propose_vectors(self.summary.words)

    @property
    def separator_remedy(self) -> str:  # type: ignore[override]
        if self.summary.layout.format in _DESCRIPTIONS:
            return "a blank ends a label" if "word" in _DESCRIPTIONS[self.summary.layout.format] else "labels are names"
        if character := self._find_separator():
            return f"--set data.separator={shlex.quote(character)} reads several labels from a field"
        return super().separator_remedy

    def recipe(self) -> tuple[str, str, str]:
        if self.summary.size <= MAX_LINEAR_TEXTS:
            return "classify-linear", "classifier", "texts are few"
        if len(self.summary.lengths) > 1:
            return "classify-pairs", "classifier", "the texts are pairs"
        return "classify-lstm", "classifier", f"there are over {MAX_LINEAR_TEXTS:,} texts"

    def settings(self) -> Iterator[str]:
        yield from super().settings()
        if words := self.columns.get("words"):
            yield f"data.texts={json.dumps(words.split(','), ensure_ascii=False)}"
            if self.summary.layout.joined:
                yield "data.joined=true"
        if labels := self.columns.get("labels") or self.summary.proposed_labels:
            yield f"data.labels={toml_value(labels)}"
        if character := self._find_separator():
            yield f"data.separator={character}"

    def _describe_columns(self) -> str:
        layout = self.summary.layout
        texts = " + ".join(map(str, layout.texts)) + (" (joined)" if layout.joined else "")
        labels = layout.described_labels if self.summary.is_labeled else "label: none"
        return f"{labels}, {'texts' if len(self.summary.lengths) > 1 else 'text'}: {texts}"

    def _find_separator(self) -> str:
        """Return a separator at which labels can be split into fewer distinct labels; "" without a separator."""
        labels, has_fields = self.summary.labels, self.summary.layout.format not in _DESCRIPTIONS
        for character in ",;|#" if has_fields else "":  # doccano writes "#"
            names = {name.strip() for label in labels for name in label.split(character)}
            if len(names) < len(labels) and "" not in names:
                return character
        return ""

    @property
    def splitter(self) -> str:  # type: ignore[override]
        words = self.summary.words
        is_distinct = len(words) >= _MIN_DISTINCT_SHARE * words.total() and words.total() >= _MIN_WORDS
        return "characters" if is_distinct or self._lacks_spaces() else ""

    def _lacks_spaces(self) -> bool:
        """Return whether most words are long and in a script without spaces between words."""
        words = self.summary.words
        return 2 * sum(count for word, count in words.items() if _UNSPACED_SCRIPT.search(word)) > words.total()
