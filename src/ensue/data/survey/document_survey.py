"""The numbers of labeled texts: lengths, labels, and what the columns beside them hold."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from ensue.data.decoding import checked_encoding
from ensue.data.detection.format_table import CLASS_FILES, FOLDERS
from ensue.data.detection.formats import first_lines
from ensue.data.detection.kind import Taken
from ensue.data.detection.locations import class_files
from ensue.data.examples import Document, DocumentLayout, DocumentSource
from ensue.data.examples.formats import DOCUMENT_FORMATS
from ensue.data.examples.layout import DocumentChoice
from ensue.data.examples.record_formats import RecordDocuments
from ensue.data.files import files_of
from ensue.data.records.tables import Dialect
from ensue.data.survey.counts import ColumnValues, LabeledSummary, Lengths, fill
from ensue.errors import DataError
from ensue.parsing import ParseError, parse_json
from ensue.text.tokens import tokens

SPLITTER = "simple"
"""The splitter of the recipes of classifiers."""


@dataclass
class DocumentSummary(LabeledSummary):
    """`columns` are those of the first rows, all that a table or JSON has."""

    layout: DocumentLayout = field(default_factory=lambda: DocumentLayout(""))
    labels_in_a_text: Lengths = field(default_factory=Lengths)


def survey_documents(taken: Taken, location: str, words: str, labels: str, encoding: str) -> DocumentSummary:
    """Counts all texts, or those before the first wrong line, which is the summary's `error`."""
    texts = tuple(filter(None, words.split(",")))
    choice = DocumentChoice(texts, labels, joined=len(texts) > 2)
    summary = DocumentSummary(taken, location, encoding, columns=_first_columns(taken, location, encoding))
    if taken.format != FOLDERS:
        paths = files_of(location)
        summary.num_files = len(class_files(paths) if taken.format == CLASS_FILES else paths)
    source: DocumentSource | None = None
    try:
        source = DocumentSource(location, choice, format=taken.format, encoding=encoding)
    except DataError as error:
        summary.is_labeled, summary.error = False, error
        with suppress(DataError):
            unlabeled = replace(choice, is_labeled=False)
            source = DocumentSource(location, unlabeled, format=taken.format, encoding=encoding)
    if source is None:
        return summary
    layout = summary.layout = source.layout
    if summary.error and not labels and len(layout.texts) == len(summary.columns.counts) > 0:
        summary.error = None  # texts without labels are no mistake
    fill(summary, source, partial(_feed_document, summary), "text")
    summary.characters = set(chain.from_iterable(summary.words))
    return summary


def _feed_document(summary: DocumentSummary, document: Document) -> None:
    summary.size += 1
    if summary.layout.format == FOLDERS:
        summary.num_files = summary.size
    words = [[token.text for token in tokens(text, SPLITTER)] for text in document.texts]
    summary.add_words(words, sum(map(len, document.texts)))
    if document.is_empty:
        summary.add_empty(document.path, document.line)
    if summary.is_labeled:
        summary.labels.update(document.labels)
        summary.labels_in_a_text.add(len(document.labels))
    summary.repeats.feed(document.texts, document.labels)


def _first_columns(taken: Taken, location: str, encoding: str) -> ColumnValues:
    """The values in the columns of a table, or under the keys of JSON, in the first lines."""
    values = ColumnValues()
    if taken.format == FOLDERS:
        return values
    path = files_of(location)[0]
    head = first_lines(path, encoding=checked_encoding(encoding))
    with suppress(DataError):  # which reading will raise
        for cells in _cells(taken.format, head, str(path)):
            values.feed(cells, cells)
    return values


def _cells(format: str, head: Sequence[str], name: str) -> Iterator[dict[str, list[str]]]:
    """Each row's cells by the numbers of the columns, or each object's values by their keys."""
    view = DOCUMENT_FORMATS[format]
    if not isinstance(view, RecordDocuments):
        return
    if isinstance(table := view.reader, Dialect):
        for row in table.rows_of_file(enumerate(head, 1), name):
            yield {str(number): [table.value(field)] for number, field in enumerate(row.values, 1)}
    else:
        for line in head:
            with suppress(ParseError):
                record = parse_json(line)
                if isinstance(record, dict):
                    yield {key: [_shown(value)] for key, value in record.items()}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
