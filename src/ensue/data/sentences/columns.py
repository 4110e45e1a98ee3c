"""One word a line with any number of columns, and a blank line after each sentence, as in CoNLL's shared tasks.

Columns are named by their numbers: "1" to the number there are, and "last". No line is a comment, since "#" may be a
word; `-DOCSTART-` lines begin a document and are kept when writing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ensue.data.detection.signs import DOCUMENT_START
from ensue.data.lines import Lines, Paragraph, checked_width, is_blank, paragraphs
from ensue.data.sentences.sentence import Format, Sentence, SourceLines, checked_label, missing_column
from ensue.errors import DataError

_FIELD = re.compile(r"[^ \t]+")


@dataclass(frozen=True, slots=True)
class ColumnLines(SourceLines):
    """The lines of a sentence of `width` columns, which tabs separate if `has_tabs`, or else runs of blanks."""

    has_tabs: bool = False
    width: int = 1


class Columns(Format):
    """Reads with the words in column `words`. A file has tabs for separators if its first row has one."""

    name = "columns"
    default_words = "1"
    default_column = "last"

    def read(self, lines: Lines) -> Iterator[Sentence]:
        """Raises DataError for a row with more or fewer columns than the first one."""
        layout: _Layout | None = None
        document, seen = 0, False
        for paragraph in paragraphs(lines, _opens_document):
            document += seen and any(map(_opens_document, paragraph.lines))
            seen = True
            numbered = [(n, line) for n, line in enumerate(paragraph.lines, paragraph.first) if _is_row(line)]
            layout = layout or _Layout.of(numbered[0], lines.name)
            yield self._sentence(numbered, paragraph, layout, lines.name, document)

    def _sentence(
        self, rows: list[tuple[int, str]], paragraph: Paragraph, layout: _Layout, name: str, document: int
    ) -> Sentence:
        source = ColumnLines(name, "".join(paragraph.lines), layout.has_tabs, layout.width)
        place = _place(self.words, layout.width)
        if place is None:
            raise DataError(missing_column(self.words, list(_ColumnView([], layout.width))), name, rows[0][0])
        view = _ColumnView([layout.fields(number, line, name) for number, line in rows], layout.width)
        return Sentence(tuple([fields[place] for fields in view.rows]), view, rows[0][0], source, document)

    def write(self, sentence: Sentence, labels: Sequence[str], column: str | None = None) -> str:
        """Replaces a column that exists. For any other number, and for "last" in a file of words alone, it appends one.

        Raises DataError for a label that is empty or has a separator in it.
        """
        source = sentence.source
        assert isinstance(source, ColumnLines)
        name = column or self.default_column
        place = None if source.width == 1 and name == "last" else _place(name, source.width)
        has_blanks = source.width > 1 and not source.has_tabs
        forbidden = " \t\r\n" if has_blanks else "\t\r\n"
        left = iter([checked_label(label, forbidden, sentence) for label in labels])
        lines = source.text.split("\n")
        written = [_with_field(line, place, next(left), source) if _is_row(line) else line for line in lines]
        assert next(left, None) is None, "more labels than words"
        return "\n".join(written)

    def labels(self, sentence: Sentence, column: str | None = None) -> tuple[str, ...]:
        """The labels in a column, by default in the last one. Raises DataError if the words are the only column."""
        if column is None and len(sentence.columns) == 1:
            raise sentence.error("no labels: the file has one column, that of the words")
        return sentence.column(column or self.default_column)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The form of all rows, by the first row of a file."""

    line: int
    width: int
    has_tabs: bool

    @classmethod
    def of(cls, row: tuple[int, str], name: str) -> _Layout:
        number, line = row
        has_tabs = "\t" in line
        return cls(number, checked_width(len(_fields(line, has_tabs)), name, number), has_tabs)

    def fields(self, number: int, line: str, name: str) -> list[str]:
        """The columns of a row. Raises DataError unless there are as many as in the first one."""
        fields = _fields(line, self.has_tabs)
        if len(fields) != self.width:
            separator = "tabs" if self.has_tabs else "blanks"
            expected = f"expected {self.width} columns separated by {separator} as in line {self.line}"
            raise DataError(f"{expected}, found {len(fields)}", name, number)
        return fields


class _ColumnView(Mapping[str, tuple[str, ...]]):
    """The columns of a sentence, by the fields of its rows."""

    __slots__ = ("rows", "width")

    def __init__(self, rows: list[list[str]], width: int) -> None:
        self.rows, self.width = rows, width

    def __getitem__(self, name: str) -> tuple[str, ...]:
        place = _place(name, self.width)
        if place is None:
            raise KeyError(name)
        return tuple([fields[place] for fields in self.rows])

    def __iter__(self) -> Iterator[str]:
        return map(str, range(1, self.width + 1))

    def __len__(self) -> int:
        return self.width


def _place(name: str, width: int) -> int | None:
    """The column's place, from 0; None if there is no such column."""
    number = width if name == "last" else int(name) if name.isascii() and name.isdecimal() else 0
    return number - 1 if 1 <= number <= width else None


def _opens_document(line: str) -> bool:
    return line.startswith(DOCUMENT_START) and line[len(DOCUMENT_START) :][:1] in {"", " ", "\t", "\r", "\n"}


def _is_row(line: str) -> bool:
    return not is_blank(line) and not _opens_document(line)


def _fields(line: str, has_tabs: bool) -> list[str]:
    content = line.removesuffix("\n").removesuffix("\r")
    return content.split("\t") if has_tabs else _FIELD.findall(content)


def _with_field(line: str, place: int | None, label: str, source: ColumnLines) -> str:
    """The row with the label in the column at `place`, or in a new one for None."""
    content = line.removesuffix("\r")
    end = line[len(content) :]
    if source.has_tabs:
        fields = content.split("\t")
        return "\t".join([*fields, label] if place is None else [*fields[:place], label, *fields[place + 1 :]]) + end
    spans = [match.span() for match in _FIELD.finditer(content)]
    if place is not None:
        return content[: spans[place][0]] + label + content[spans[place][1] :] + end
    separator = content[spans[-2][1] : spans[-1][0]] if len(spans) > 1 else "\t"
    return content[: spans[-1][1]] + separator + label + content[spans[-1][1] :] + end
