"""Tables: rows of fields between tabs, commas or semicolons. Formats know the meaning of the columns."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from ensue.data.columns import Column, columns_counted
from ensue.data.lines import Lines
from ensue.data.quoting import announced_delimiter, quoted, quoted_rows, unquoted
from ensue.data.records import SAMPLE_ROWS, Record, records, sample, without_end
from ensue.errors import DataError

_SEPARATORS = re.compile(r" *[\t\r\n][ \t\r\n]*")


def one_field(value: str) -> str:
    """A value as it can stand between tabs: a blank for tabs and line ends with the blanks around them."""
    return _SEPARATORS.sub(" ", value)


class Row(NamedTuple):
    """A record and its fields, as they are written."""

    record: Record
    fields: list[str]


class Dialect(ABC):
    """How the fields of a row are written."""

    name: str
    delimiter: str
    sample_lines = SAMPLE_ROWS

    @abstractmethod
    def rows(self, lines: Iterable[tuple[int, str]], name: str) -> Iterator[Row]:
        """The records with their fields; joined by the delimiter they are the record without its line end."""

    @abstractmethod
    def value(self, field: str) -> str:
        """The value of a field."""

    @abstractmethod
    def field(self, value: str) -> str:
        """A value as a field."""

    def first_values(self, lines: Lines) -> list[list[str]]:
        """What the first rows of a file say, which are read again. Raises DataError if the first cannot be read."""
        rows: list[list[str]] = []
        try:
            for row in islice(self.rows_of_file(sample(lines, self.sample_lines), lines.name), SAMPLE_ROWS):
                rows.append([self.value(field) for field in row.fields])
        except DataError:  # the sample may end inside quotes; reading will raise the real mistake
            if not rows:
                raise
        return rows

    def body(self, lines: Lines, *, has_header: bool, needed: Sequence[Column]) -> Iterator[Row]:
        """The rows below the header, which stands in `before` of the first of them.

        Raises DataError (file:line) for a row without the columns `needed`, or of another width than the first.
        """
        rows = self.rows_of_file(lines, lines.name)
        first = next(rows, None)
        if first is None:
            return
        before = first.record.before + first.record.text if has_header else ""
        width = len(first.fields)
        if missing := next((column for column in needed if column.number > width), None):
            raise DataError(f"{columns_counted(width)}; expected {missing}", lines.name, first.record.line)
        for record, fields in rows if has_header else chain([first], rows):
            if len(fields) != width:
                found = f"{columns_counted(len(fields))}; expected {width} as in line {first.record.line}"
                raise DataError(found, lines.name, record.line)
            yield Row(record._replace(before=before + record.before) if before else record, fields)
            before = ""

    def rows_of_file(self, lines: Iterable[tuple[int, str]], name: str) -> Iterator[Row]:
        """The rows of a file. A first line that only announces the delimiter stands in `before` of the first row."""
        rows = self.rows(lines, name)
        first = next(rows, None)
        if first is not None and announced_delimiter(first.record.text):
            passed, first = first.record.before + first.record.text, next(rows, None)
            first = first and Row(first.record._replace(before=passed + first.record.before), first.fields)
        return chain([] if first is None else [first], rows)


class TabSeparated(Dialect):
    """Quotes are characters like any other, so a field holds neither tab nor line break."""

    name = "tsv"
    delimiter = "\t"

    def rows(self, lines: Iterable[tuple[int, str]], name: str) -> Iterator[Row]:
        return (Row(record, without_end(record.text)[0].split("\t")) for record in records(lines, name))

    def value(self, field: str) -> str:
        return field

    def field(self, value: str) -> str:
        return one_field(value)


class CommaSeparated(Dialect):
    """Values separated by commas as RFC 4180 has them."""

    name = "csv"
    delimiter = ","
    sample_lines = 16 * SAMPLE_ROWS  # a record may have many

    def rows(self, lines: Iterable[tuple[int, str]], name: str) -> Iterator[Row]:
        return (
            Row(record, fields)
            for record, fields in quoted_rows(records(lines, name, empty=True), name, self.delimiter)
        )

    def value(self, field: str) -> str:
        return unquoted(field)

    def field(self, value: str) -> str:
        return quoted(value, self.delimiter)


class SemicolonSeparated(CommaSeparated):
    """Values separated by semicolons, as spreadsheets write them in countries whose numbers have commas."""

    name = "csv-semicolon"
    delimiter = ";"


DIALECTS: tuple[Dialect, ...] = (TabSeparated(), CommaSeparated(), SemicolonSeparated())
TABLES = {dialect.name for dialect in DIALECTS}
