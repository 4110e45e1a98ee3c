"""A file of labeled texts: its format, its documents, its records with other labels; and a folder for each class."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ensue.data.decoding import checked_encoding, whole_text
from ensue.data.detection.format_table import CLASS_FILES, FOLDERS, READERS, class_of
from ensue.data.detection.formats import csv_format, text_format
from ensue.data.detection.signs import FASTTEXT_PREFIX
from ensue.data.documents.document import Choice, Document, DocumentFormat, Layout, shown_probabilities, split_labels
from ensue.data.documents.record_documents import RecordDocuments
from ensue.data.files import FORMAT_OPTION, IN_OPTIONS, visible
from ensue.data.lines import Lines
from ensue.data.records.record import records, without_end
from ensue.data.records.tables import TABLES, one_field
from ensue.errors import DataError, nearest

_BLANKS = re.compile(r"[ \t\r\n]+")
"""The separator of a label and the text; other white space is a character of a label."""
_LEADING = re.compile(rf"[ \t]*(?:{FASTTEXT_PREFIX}[^ \t]+(?:[ \t]+|\Z))*")
_TRAILING = re.compile(rf"[ \t]*(?:[^ \t]+?{FASTTEXT_PREFIX[::-1]}(?:[ \t]+|\Z))+")  # read from the end of the line


class FastTextLine(NamedTuple):
    """A line in three parts: the text, and before and after it labels with the blanks around them."""

    leading: str
    text: str
    trailing: str

    @classmethod
    def of(cls, body: str) -> FastTextLine:
        """The parts of a line without its end."""
        start = match.end() if (match := _LEADING.match(body)) else 0
        behind = _TRAILING.match(body[start:][::-1]) if FASTTEXT_PREFIX in body[start:] else None
        stop = len(body) - behind.end() if behind else len(body)
        return cls(body[:start], body[start:stop], body[stop:])

    @property
    def labels(self) -> tuple[str, ...]:
        """The distinct labels in the order of the line, without their prefix."""
        marks = _BLANKS.split(f"{self.leading} {self.trailing}")
        return tuple(dict.fromkeys(mark.removeprefix(FASTTEXT_PREFIX) for mark in marks if mark))


class LineFormat(DocumentFormat):
    """A document in each line; lines without anything are skipped, unless they are documents if `empty`."""

    empty = False

    def read(self, lines: Lines, layout: Layout, *, is_labeled: bool) -> Iterator[Document]:
        for record in records(lines, lines.name, empty=self.empty):
            text, labels = self.parts(without_end(record.text)[0], lines.name)
            yield Document((text,), labels, lines.name, record.line, record.text, record.before)

    def parts(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        """The text and the labels of a line without its end, in the file `name`."""
        return body, ()

    def write(
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """The line with the labels and their probabilities before it, separated by tabs."""
        values = [",".join(labels), *([",".join(shown_probabilities(probabilities))] if probabilities else [])]
        return document.before + "\t".join([*map(one_field, values), document.source])


class FastText(LineFormat):
    """`__label__x __label__y text`; the labels may also stand behind the text. A line without any is unlabeled."""

    name = "fasttext"

    def parts(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        found = FastTextLine.of(body)
        return found.text, found.labels

    def write(
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """The format has no place for probabilities; blanks within a label become `_`."""
        body, end = without_end(document.source)
        parts = FastTextLine.of(body)
        marks = " ".join(FASTTEXT_PREFIX + _one_word(label) for label in labels)
        if parts.trailing.strip() and not parts.leading.strip():
            return f"{document.before}{parts.text} {marks}{end}"
        return f"{document.before}{marks} {parts.text}{end}"


class FirstWord(LineFormat):
    """`1 a stirring , funny ...`: the label, a blank or a tab, and the text."""

    name = "first-word"

    def parts(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        label, _, text = _parted(body)
        return text, split_labels(label, "")

    def write(
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """The format has no place for probabilities; blanks within a label become `_`."""
        body, end = without_end(document.source)
        _, blank, text = _parted(body)
        return f"{document.before}{','.join(map(_one_word, labels))}{blank or ' '}{text}{end}"


class ClassFiles(LineFormat):
    """A text in each line of a file that is named after their class. Empty lines are skipped."""

    name = CLASS_FILES

    def parts(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        return body, (class_of(name),)


class UnlabeledLines(LineFormat):
    """A text in each line, also in an empty one, without labels."""

    name = "plain"
    empty = True


def _parted(body: str) -> tuple[str, str, str]:
    """The first word of a line, the blank or tab behind it, and the text."""
    label = body[: min(len(part) for part in (body.split(" ", 1)[0], body.split("\t", 1)[0]))]
    return label, body[len(label) : len(label) + 1], body[len(label) + 1 :]


def _one_word(label: str) -> str:
    return _BLANKS.sub("_", label.strip())


FORMATS: dict[str, DocumentFormat] = {
    **{reader.name: RecordDocuments(reader) for reader in READERS},
    **{format.name: format for format in (FastText(), FirstWord(), ClassFiles(), UnlabeledLines())},
}
"""The formats of files; with `FOLDERS` the labels are the names of folders."""


def detect_lines(
    lines: Lines,
    choice: Choice | None = None,
    *,
    format: str = "",
    like: Layout | None = None,
    labels: Collection[str] = (),
) -> Layout:
    """How a file is read, by its lines, which can still be read from the first one on.

    What `choice` and `format` leave open is decided by the suffix before `.xz` or `.gz`, else by the first lines. The
    columns of the layout `like` are tried first. `labels` are the possible names of labels, if they are known. Raises
    DataError if something cannot be decided, with the setting that decides it.
    """
    choice = choice or Choice()
    known, names = (like.format, [column.name for column in like.texts if column.name]) if like else ("", [])
    name = _checked(format) or text_format(lines, is_labeled=choice.is_labeled, known=known, labels=labels, names=names)
    name = csv_format(lines) if name == "csv" else name
    if not name:
        formats = ", ".join([*FORMATS, FOLDERS])
        raise DataError(f"no labels found; {FORMAT_OPTION} says what it is ({formats})", lines.name, options=IN_OPTIONS)
    if like is not None:
        return _layout_like(like, name, lines, choice)
    layout = FORMATS[name].layout(lines, choice)
    if not layout.texts and (choice.texts or choice.labels):
        what = "data.texts and data.labels"
        in_options = {what: "--words and --labels"}
        raise DataError(f"{name} has no columns; {what} are for tsv, csv and json", lines.name, options=in_options)
    if not layout.group and choice.group:
        raise no_groups(name, lines.name)
    return layout


def read_lines(lines: Lines, layout: Layout, *, is_labeled: bool = True) -> Iterator[Document]:
    """The documents of a file in order, in constant memory. `layout` is that of the same file.

    Raises DataError (file:line) for a record that is no document, if `is_labeled` for a document without a label, and
    for one without a group, if the layout has them.
    """
    for document in FORMATS[layout.format].read(lines, layout, is_labeled=is_labeled):
        if is_labeled and not document.labels:
            where = f" in {layout.labels}" if layout.labels else ""
            raise DataError(f"no label{where}", document.path, document.line)
        if layout.group and not document.group.strip():
            raise DataError(f"no group in {layout.group}", document.path, document.line)
        yield document


def write(document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()) -> str:
    """The document's record with these labels and nothing else changed, with its line end and the text before it.

    `layout` is that of the same file. There is one probability, or one for each label.
    """
    if layout.format == FOLDERS:
        return write_folders(document, labels, probabilities)
    return FORMATS[layout.format].write(document, layout, labels, probabilities)


def no_groups(format: str, path: str) -> DataError:
    """The mistake of a group in a format without columns."""
    return DataError(f"{format} has no columns; data.group is for tables and JSON", path)


def _checked(name: str) -> str:
    if name and name not in FORMATS:
        known = [*FORMATS, FOLDERS]
        raise DataError(f'unknown format "{name}"' + (nearest(name, known) or f"; expected {', '.join(known)}"))
    return name


def _layout_like(like: Layout, name: str, lines: Lines, choice: Choice) -> Layout:
    """The layout with the columns of a run. Only JSON in place of a table, or the other way round, may have others."""
    as_named = replace(_columns_of(like, is_labeled=choice.is_labeled), group=choice.group)
    has_names = bool(like.texts) and all(column.name for column in like.texts)
    if like.format == name or (has_names and {like.format, name} <= TABLES):
        return FORMATS[name].layout(lines, as_named)
    if has_names:
        with suppress(DataError):
            return FORMATS[name].layout(lines, as_named)
    return FORMATS[name].layout(lines, replace(choice, separator=like.separator, joined=like.joined))


def _columns_of(layout: Layout, *, is_labeled: bool) -> Choice:
    """The columns of a run as the choice of a user."""
    texts = tuple(column.name or str(column.number) for column in layout.texts)
    label = (layout.labels.name or str(layout.labels.number)) if layout.labels else ""
    header = layout.header if layout.texts and layout.texts[0].number else None
    return Choice(texts, label, header, layout.separator, layout.joined, is_labeled)


def read_folders(root: Path, *, encoding: str = "utf-8") -> Iterator[Document]:
    """The texts of `root/<class>/<file>`, class after class, each sorted by name; `.xz` and `.gz` are decompressed.

    Files in `root` itself are skipped. Raises DataError for a class without files, a folder within a class, and a text
    that cannot be read.
    """
    encoding = checked_encoding(encoding)
    folders = [path for path in visible(root) if path.is_dir()]
    if not folders:
        raise DataError("no folders; expected one for each class", root)
    for folder in folders:
        files = visible(folder)
        if not files:
            raise DataError(f'no file of the class "{folder.name}"', folder)
        for path in files:
            if path.is_dir():
                raise DataError("a folder within a class; expected files", path)
            yield Document((whole_text(path, encoding),), (folder.name,), str(path), 1)


def write_folders(document: Document, labels: Sequence[str], probabilities: Sequence[float] = ()) -> str:
    """A line with the file's name, a tab and the labels."""
    values = [",".join(labels), *([",".join(shown_probabilities(probabilities))] if probabilities else [])]
    return "\t".join([document.path, *values]) + "\n"
