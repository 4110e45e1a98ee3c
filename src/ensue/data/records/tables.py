"""Tables: rows of fields between tabs, commas or semicolons. Formats know the meaning of the columns."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from ensue.data.lines import Lines, checked_width
from ensue.data.records.quoting import announced_delimiter, quoted, quoted_rows, unquoted
from ensue.data.records.reader import LABEL, PROBABILITY, Answer, Reader, Row
from ensue.data.records.record import SAMPLE_ROWS, Column, Record, columns_counted, records, sample, without_end
from ensue.errors import DataError

_SEPARATORS = re.compile(r" *[\t\r\n][ \t\r\n]*")


def one_field(value: str) -> str:
    """A value as it can stand between tabs: a blank for tabs and line ends with the blanks around them."""
    return _SEPARATORS.sub(" ", value)


class Dialect(Reader):
    """How the fields of a row are written."""

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

    def first(self, lines: Lines) -> list[list[str]]:
        """The values of the first rows. Raises DataError if the first cannot be read."""
        rows: list[list[str]] = []
        try:
            for row in islice(self.rows_of_file(sample(lines, self.sample_lines), lines.name), SAMPLE_ROWS):
                rows.append([self.value(field) for field in row.values])
        except DataError:  # the sample may end inside quotes; reading will raise the real mistake
            if not rows:
                raise
        return rows

    def read(self, lines: Lines, *, header: bool, needed: Sequence[Column]) -> Iterator[Row]:
        """The rows below the header, which stands in `before` of the first of them.

        Raises DataError (file:line) for a row without the columns `needed`, or of another width than the first.
        """
        rows = self.rows_of_file(lines, lines.name)
        first = next(rows, None)
        if first is None:
            return
        before = first.record.before + first.record.text if header else ""
        width = len(first.values)
        if missing := next((column for column in needed if column.number > width), None):
            raise DataError(f"{columns_counted(width)}; expected {missing}", lines.name, first.record.line)
        for record, fields in rows if header else chain([first], rows):
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
            first = first and Row(first.record._replace(before=passed + first.record.before), first.values)
        if first is not None:
            checked_width(len(first.values), name, first.record.line)
        return chain([] if first is None else [first], rows)

    def at(self, values: list[str], column: Column) -> str:
        return self.value(values[column.number - 1])

    def text(self, values: list[str], column: Column, name: str, line: int, *, numbers: bool = False) -> str:
        return self.value(values[column.number - 1])

    def written(self, record: Record, own: Sequence[str], answer: Answer) -> str:
        """The labels in their column, or like the probabilities in one at the end, which also the header gets. The
        fields stay as they are written where they say the same.
        """
        separator = answer.separator or ","
        labels, shown = self.field(separator.join(answer.labels)), [f"{each:.4f}" for each in answer.probabilities]
        added = {PROBABILITY: separator.join(shown)} if shown else {}
        fields = next(self.rows(Lines([record.text], ""), "")).values
        if answer.column is None:
            added = {LABEL: labels, **added}
        elif tuple(own) != tuple(answer.labels):
            fields[answer.column.number - 1] = labels
        _, end = without_end(record.text)
        before = self._extended(record.before, added) if answer.header else record.before
        return before + self.delimiter.join([*fields, *added.values()]) + end

    def _extended(self, before: str, names: Iterable[str]) -> str:
        """The header, if it is there, with these names at its end."""
        header = before.rstrip(" \r\n")
        return self.delimiter.join([header, *names]) + before[len(header) :] if header else before


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
