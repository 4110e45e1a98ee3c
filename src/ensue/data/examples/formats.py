"""The formats of labeled texts and of pairs by name, and which of them a file has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ensue.data.detection.format_table import ALIGNED, FOLDERS, READERS, TABBED, suffix
from ensue.data.detection.formats import csv_format, pair_format, text_format
from ensue.data.examples.example import Document
from ensue.data.examples.layout import (
    ChoiceT,
    DocumentChoice,
    DocumentFormat,
    DocumentLayout,
    ExampleFormat,
    LayoutT,
    PairChoice,
    PairFormat,
    PairLayout,
)
from ensue.data.examples.lines import LINES_OF_PAIRS, LINES_OF_TEXTS, written_values
from ensue.data.examples.record_formats import RecordDocuments, RecordPairs, Sigmorphon
from ensue.data.files import FORMAT_OPTION, IN_OPTIONS
from ensue.data.lines import Lines
from ensue.data.records.tables import TABLES
from ensue.errors import DataError, nearest
from ensue.extension import loadable_entries

DOCUMENT_FORMATS: dict[str, DocumentFormat] = {
    **{reader.name: RecordDocuments(reader) for reader in READERS},
    **{format.name: format for format in LINES_OF_TEXTS},
}
"""The formats of files of labeled texts; with `FOLDERS` the labels are the names of folders."""
PAIR_FORMATS: dict[str, PairFormat] = {
    **{reader.name: RecordPairs(reader) for reader in READERS},
    **{format.name: format for format in (Sigmorphon(), *LINES_OF_PAIRS)},
}
"""The core's formats of pairs in one file; two files are `ALIGNED`."""


def pair_formats() -> dict[str, PairFormat]:
    """Return the formats of pairs by name, with those of extensions."""
    return PAIR_FORMATS | loadable_entries("pair_format", ExampleFormat)


def detect_documents(
    lines: Lines,
    choice: DocumentChoice | None = None,
    *,
    format: str = "",
    like: DocumentLayout | None = None,
    labels: Collection[str] = (),
) -> DocumentLayout:
    """How a file of labeled texts is read, by its lines, which can still be read from the first one on.

    What `choice` and `format` leave open is decided by the suffix before `.xz` or `.gz`, else by the first lines. The
    columns of the layout `like` are tried first. `labels` are the possible names of labels, if they are known. Raises
    DataError if something cannot be decided, with the setting that decides it.
    """
    choice = choice or DocumentChoice()
    known, names = (like.format, like.names) if like else ("", [])
    name = _checked(format, [*DOCUMENT_FORMATS, FOLDERS]) or text_format(
        lines, is_labeled=choice.is_labeled, known=known, labels=labels, names=names
    )
    if not name:
        formats = ", ".join([*DOCUMENT_FORMATS, FOLDERS])
        raise DataError(f"no labels found; {FORMAT_OPTION} says what it is ({formats})", lines.name, options=IN_OPTIONS)
    return _layout(DOCUMENT_FORMATS, name, lines, choice, like)


def detect_pairs(lines: Lines, choice: PairChoice, *, format: str = "", like: PairLayout | None = None) -> PairLayout:
    """How a file of pairs is read, in the way of `detect_documents`. Columns that the user names replace `like`.

    A file in which no format is recognized has that of `like`, if this has no columns.
    """
    if format == ALIGNED:
        raise DataError("two files that are aligned have a comma between them, such as train.en,train.de")
    formats = pair_formats()
    like = None if choice.names else like
    known, names = (like.format if like.format in formats else "", like.names) if like else ("", [])
    if like and not known and like.format == suffix(lines.name).removeprefix("."):
        raise DataError(f"the run reads the format {like.format}, whose extension is not installed", lines.name)
    name = _checked(format, formats) or pair_format(lines, is_labeled=choice.is_labeled, known=known, names=names)
    if not name and known and not formats[known].has_columns:
        name = known
    if not name:
        listed = ", ".join(format for format in formats if format != "plain")
        advice = f"two files with a comma between them, or {FORMAT_OPTION} says what it is ({listed})"
        message = f"no pairs found; expected a source, a tab and a target in each line, {advice}"
        raise DataError(message, lines.name, options=IN_OPTIONS)
    return _layout(formats, known if {name, known} <= TABBED else name, lines, choice, like)


def _checked(name: str, known: Collection[str]) -> str:
    """The name. Raises DataError for an unknown format."""
    if name and name not in known:
        raise DataError(f'unknown format "{name}"' + (nearest(name, known) or f"; expected {', '.join(known)}"))
    return name


def _layout(
    formats: Mapping[str, ExampleFormat[Any, LayoutT, ChoiceT]],
    name: str,
    lines: Lines,
    choice: ChoiceT,
    like: LayoutT | None,
) -> LayoutT:
    """The layout of a file in a format: with the columns of `like`, or else by `choice`."""
    format = formats[csv_format(lines) if name == "csv" else name]
    if like is not None:
        layout = _layout_like(format, like, lines, choice)
    elif choice.names and not format.has_columns:
        message = f"{name} has no columns; {choice.settings} are for tables and JSON"
        raise DataError(message, lines.name, options={choice.settings: choice.options})
    else:
        layout = format.layout(lines, choice)
    if choice.group and not layout.group:
        raise no_groups(name, lines.name)
    return layout


def _layout_like(format: ExampleFormat[Any, LayoutT, ChoiceT], like: LayoutT, lines: Lines, choice: ChoiceT) -> LayoutT:
    """The layout with the columns of a run. Only JSON in place of a table, or the reverse, may have others."""
    as_named = like.choice(choice)
    if format.name in (like.format, "plain") or (like.names and {like.format, format.name} <= TABLES):
        return format.layout(lines, as_named)
    if like.names:
        with suppress(DataError):
            return format.layout(lines, as_named)
    return format.layout(lines, like.remainder(choice))


def no_groups(format: str, path: str) -> DataError:
    """The mistake of a group in a format without columns."""
    return DataError(f"{format} has no columns; data.group is for tables and JSON", path)


def read_documents(lines: Lines, layout: DocumentLayout, *, is_labeled: bool = True) -> Iterator[Document]:
    """The documents of a file in order, in constant memory. `layout` is that of the same file.

    Raises DataError (file:line) for a record that is no document, and if `is_labeled` for a document without a label.
    """
    for document in DOCUMENT_FORMATS[layout.format].read(lines, layout, is_labeled=is_labeled):
        if is_labeled and not document.labels:
            where = f" in {layout.labels}" if layout.labels else ""
            raise DataError(f"no label{where}", document.path, document.line)
        yield document


def write_document(
    document: Document, layout: DocumentLayout, labels: Sequence[str], probabilities: Sequence[float] = ()
) -> str:
    """The document's record with these labels and nothing else changed, with its line end and the text before it.

    `layout` is that of the same file. There is one probability, or one for each label. For a file of a folder of
    classes it is a line with the file's name.
    """
    if layout.format == FOLDERS:
        return f"{document.path}\t{written_values(labels, probabilities)}\n"
    return DOCUMENT_FORMATS[layout.format].write(document, layout, labels, probabilities)
