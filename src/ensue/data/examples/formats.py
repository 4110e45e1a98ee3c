"""Formats of labeled texts and of pairs, by name, and their detection."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ensue.data.detection import format_table
from ensue.data.examples import layout as layouts
from ensue.data.examples.layout import Document
from ensue.data.examples.lines import PAIR_LINE_FORMATS, TEXT_LINE_FORMATS, label_fields
from ensue.data.examples.record_formats import RecordDocuments, RecordPairs, Sigmorphon
from ensue.data.files import FORMAT_OPTION, IN_OPTIONS
from ensue.data.in_memory import are_unnamed
from ensue.data.lines import Lines
from ensue.data.records.record import Column
from ensue.data.records.tables import TABLES, Dialect
from ensue.data.row_formats import TABLE_SUFFIXES
from ensue.errors import FILES_OF_ROWS, DataError, IncompleteError, nearest
from ensue.extension import loadable_entries

DOCUMENT_FORMATS: dict[str, layouts.DocumentFormat] = {
    format.name: format for format in (*map(RecordDocuments, format_table.READERS), *TEXT_LINE_FORMATS)
}
"""The formats of files of labeled texts. `FOLDERS` is absent, since it is a format of folders."""
PAIR_FORMATS: dict[str, layouts.PairFormat] = {
    format.name: format for format in (*map(RecordPairs, format_table.READERS), Sigmorphon(), *PAIR_LINE_FORMATS)
}
"""The formats of pairs in one file, without formats of extensions. Pairs in two files are `ALIGNED`."""


def pair_formats() -> dict[str, layouts.PairFormat]:
    """Return the formats of pairs by name, including formats of extensions."""
    return PAIR_FORMATS | loadable_entries("pair_format", layouts.ExampleFormat)


def detect_documents(
    lines: Lines, choice: layouts.DocumentChoice | None = None, *, format: str = "",
    like: layouts.DocumentLayout | None = None, labels: Collection[str] = (),
) -> layouts.DocumentLayout:  # fmt: skip
    """Detect the layout of a file of labeled texts from its first lines, which are not consumed.

    `choice` and `format` are settings of the user. `labels` are the possible labels, if they are known. The columns of
    `like`, the layout of a run, are tried first. Raises DataError, with a proposed setting, for an ambiguous layout.
    """
    choice = choice or layouts.DocumentChoice()
    run_format, names = (like.format, like.names) if like else ("", choice.texts)
    name = _check_format(format, [*DOCUMENT_FORMATS, format_table.FOLDERS]) or format_table.text_format(
        lines, is_labeled=choice.is_labeled, run_format=run_format, labels=labels, names=names
    )
    if name == "first-word" and not format and lines.name in FILES_OF_ROWS:
        raise DataError('texts without labels; expected rows such as ("a text", "label")', lines.name)
    if not name:
        formats = ", ".join([*DOCUMENT_FORMATS, format_table.FOLDERS])
        raise DataError(f"no labels found; set {FORMAT_OPTION} to one of {formats}", lines.name, options=IN_OPTIONS)
    return _detect_layout(DOCUMENT_FORMATS, name, lines, choice, like)


def detect_pairs(
    lines: Lines, choice: layouts.PairChoice, *, format: str = "", like: layouts.PairLayout | None = None
) -> layouts.PairLayout:
    """Detect the layout of a file of pairs from its first lines, like `detect_documents`.

    Columns in `choice` override `like`. The format of `like`, unless it has columns, is the fallback.
    """
    if format == format_table.ALIGNED:
        raise DataError("expected two aligned files with a comma between them, such as train.en,train.de")
    formats = pair_formats()
    like = None if choice.names and not are_unnamed(lines.name) else like
    run_format, names = (like.format if like.format in formats else "", like.names) if like else ("", [])
    if like and not run_format and like.format == format_table.suffix(lines.name).removeprefix("."):
        raise DataError(f"the run reads the format {like.format}, whose extension is not installed", lines.name)
    name = _check_format(format, formats) or format_table.pair_format(
        lines, is_labeled=choice.is_labeled, run_format=run_format, names=names
    )
    if not name and run_format and not formats[run_format].has_columns:
        name = run_format
    if not name:
        listed = ", ".join(format for format in formats if format != "plain")
        advice = f"two files with a comma between them; or set {FORMAT_OPTION} to one of {listed}"
        message = f"no pairs found; expected a source, a tab and a target in each line, or {advice}"
        raise DataError(message, lines.name, options=IN_OPTIONS)
    name = run_format if {name, run_format} <= format_table.TABBED_FORMATS else name
    return _detect_layout(formats, name, lines, choice, like)


def _check_format(name: str, names: Collection[str]) -> str:
    if name and name not in names:
        raise DataError(f'unknown format "{name}"' + (nearest(name, names) or f"; expected {', '.join(names)}"))
    return name


def _detect_layout(
    formats: Mapping[str, layouts.ExampleFormat[Any, layouts.LayoutT, layouts.ChoiceT]], name: str, lines: Lines,
    choice: layouts.ChoiceT, like: layouts.LayoutT | None,
) -> layouts.LayoutT:  # fmt: skip
    format = formats[format_table.csv_format(lines) if name == "csv" else name]
    if like is not None:
        layout = _adapt_layout(format, like, lines, choice)
    elif choice.names and not format.has_columns:
        message = f"{name} has no columns; {choice.settings} are for tables and JSON"
        raise DataError(message, lines.name, options={choice.settings: choice.options})
    else:
        layout = format.layout(lines, choice)
    if choice.group and not layout.group:
        raise groups_error(name, lines.name)
    return layout


def _adapt_layout(
    format: layouts.ExampleFormat[Any, layouts.LayoutT, layouts.ChoiceT], like: layouts.LayoutT, lines: Lines,
    choice: layouts.ChoiceT,
) -> layouts.LayoutT:  # fmt: skip
    """Return the layout of a file, with the columns of a run's layout `like` if the file has these columns."""
    if are_unnamed(lines.name):
        choice_class: Any = type(choice)
        return format.layout(lines, like.with_options(choice_class(is_labeled=choice.is_labeled, group=choice.group)))
    with_columns = like.with_columns(choice)
    if format.name in (like.format, "plain") or (like.names and {like.format, format.name} <= TABLES.keys()):
        return format.layout(lines, with_columns)
    if like.names:
        with suppress(DataError):
            return format.layout(lines, with_columns)
    return format.layout(lines, like.with_options(choice))


def groups_error(format: str, path: str) -> DataError:
    """Return the error for a column of groups in a format without columns."""
    return DataError(f"{format} has no columns; data.group is for tables and JSON", path)


def read_documents(lines: Lines, layout: layouts.DocumentLayout, *, is_labeled: bool = True) -> Iterator[Document]:
    """Yield the documents of a file with this layout in order, in constant memory.

    Raises DataError (file:line) for an invalid record, and if `is_labeled` for a document without a label.
    """
    for document in DOCUMENT_FORMATS[layout.format].read(lines, layout, is_labeled=is_labeled):
        if is_labeled and (document.unlabeled or not (document.labels or layout.flags)):
            where = f" in {column}" if (column := document.unlabeled or layout.labels) else ""
            raise IncompleteError(f"no label{where}", document.path, document.line, missing="label")
        yield document


def write_document(
    document: Document, layout: layouts.DocumentLayout, labels: Sequence[str], probabilities: Sequence[float] = ()
) -> str:
    """Return the record of a document with other labels, including its line end, after `document.before`.

    `layout` is the layout of its file. For `FOLDERS`, the record is a line with the name of the file and the labels.
    """
    if layout.format == format_table.FOLDERS:
        return f"{document.path}\t{label_fields(labels, probabilities)}\n"
    return DOCUMENT_FORMATS[layout.format].write(document, layout, labels, probabilities)


def rows_with_texts(lines: Lines, *, text: str = "") -> Lines:
    """Return the rows of a table with a header as JSON lines for taggers. Other files are returned unchanged.

    `text` is the name or number of the column of the text, and becomes its key; by default, the column is detected and
    the key is "text". Each object has the line number of its row. Raises DataError if the column is ambiguous.
    """
    if format_table.suffix(lines.name) not in TABLE_SUFFIXES:
        return lines
    lines.split_array()
    try:
        choice = layouts.DocumentChoice((text,) if text else (), is_labeled=False)
        layout = None if lines.is_array else detect_documents(lines, choice)
    except DataError:
        if text:
            raise
        if format_table.suffix(lines.name) != ".csv":  # the file may have words in columns
            return lines
        expected = 'expected a column named "text"'
        raise DataError(f"a table in which the column of the text is ambiguous; {expected}", lines.name) from None
    if layout is None or layout.format not in TABLES or not layout.header:
        return lines
    return Lines.numbered(_objects(lines, TABLES[layout.format], layout.texts[-1], text or "text"), lines.name)


def _objects(lines: Lines, dialect: Dialect, text: Column, key: str) -> Iterator[tuple[int, str]]:
    header = dialect.first_rows(lines)[0]
    for record, fields in dialect.read(lines, header=True, needed=[text]):
        row = dict(zip(header, map(dialect.value, fields), strict=True))
        row[key] = dialect.value(fields[text.number - 1])
        if text.name != key:
            del row[header[text.number - 1]]
        yield record.line, json.dumps(row, ensure_ascii=False) + "\n"
