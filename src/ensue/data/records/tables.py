"""Readers of tables whose fields are separated by tabs, commas or semicolons."""

import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, starmap

from ensue.data.lines import Lines, check_width
from ensue.data.records import record as records
from ensue.data.records.quoting import declared_delimiter, parse_list, quote_field, quoted_rows
from ensue.data.records.record import SAMPLE_ROWS, Answer, Column, Reader, Record, Row, sample, split_line_end
from ensue.errors import DataError, pluralize
from ensue.notices import warn_once

MAX_TITLE_ROWS = 10
_SEPARATORS = re.compile(r" *[\t\r\n][ \t\r\n]*")


def to_field(value: str) -> str:
    """Replace tabs and line ends in a value by blanks, so that it can be a field between tabs."""
    return _SEPARATORS.sub(" ", value)


class Dialect(Reader):
    """A format of tables with a delimiter and possibly quoting."""

    delimiter: str
    sample_lines = SAMPLE_ROWS

    @abstractmethod
    def rows(self, lines: Iterable[tuple[int, str]], name: str) -> Iterator[Row]:
        """Yield the records, each with its fields as written. The fields exclude the line end."""

    @abstractmethod
    def value(self, field: str) -> str:
        """Return the value of a written field."""

    @abstractmethod
    def field(self, value: str) -> str:
        """Return the written field of a value."""

    def first_rows(self, lines: Lines) -> list[list[str]]:
        """Return the values of the first rows. Raises DataError for an invalid first row."""
        rows: list[list[str]] = []
        try:
            for row in islice(self.rows_of_file(sample(lines, self.sample_lines), lines.name), SAMPLE_ROWS):
                rows.append([self.value(field) for field in row.values])
        except DataError:  # the sample may end inside quotes; reading raises other errors later
            if not rows:
                raise
        return rows

    def read(self, lines: Lines, *, header: bool, needed: Sequence[Column]) -> Iterator[Row]:
        """Yield the rows below the header.

        Raises DataError (file:line) if a column in `needed` is missing, or if rows have different numbers of columns.
        """
        rows = self.rows_of_file(lines, lines.name, titles=header)
        first = next(rows, None)
        if first is None:
            return
        if (title := first.record.before.strip()) and not declared_delimiter(title):
            warn_once(f"title {lines.name}", f"{lines.name}: skipped as a title: lines above {first.record.line}")
        before = first.record.before + first.record.text if header else ""
        width = len(first.values)
        if missing := next((column for column in needed if column.number > width), None):
            raise DataError(f"{pluralize(width, 'column')}; expected {missing}", lines.name, first.record.line)
        for record, fields in rows if header else chain([first], rows):
            if len(fields) < width and self.is_lenient:
                fields.extend([""] * (width - len(fields)))
            if len(fields) != width:
                problem = f"{pluralize(len(fields), 'column')}; expected {width} as in line {first.record.line}"
                raise DataError(problem, lines.name, record.line)
            yield Row(record._replace(before=before + record.before) if before else record, fields)
            before = ""

    def rows_of_file(self, lines: Iterable[tuple[int, str]], name: str, *, titles: bool = True) -> Iterator[Row]:
        """Yield the rows below a first line that declares the delimiter and, with `titles`, below the titles.

        Titles are rows of at most one value above a row with more than two. The skipped lines are the `record.before`
        of the first row.
        """
        rows, head, num_values = self.rows(lines, name), list[Row](), 0
        while num_values < 2 and len(head) <= MAX_TITLE_ROWS and (row := next(rows, None)) is not None:
            head.append(row)
            num_values = sum(map(bool, map(str.strip, map(self.value, row.values))))
        num_skipped = int(bool(head) and declared_delimiter(head[0].record.text) != "")
        num_skipped = len(head) - 1 if titles and num_values > 2 else num_skipped
        skipped = "".join(row.record.before + row.record.text for row in head[:num_skipped])
        for first in head[num_skipped : num_skipped + 1]:
            check_width(len(first.values), name, first.record.line)
            head[num_skipped] = first._replace(record=first.record._replace(before=skipped + first.record.before))
        return chain(head[num_skipped:], rows)

    def at(self, values: list[str], column: Column) -> str:
        return self.value(values[column.number - 1])

    def text(self, values: list[str], column: Column, name: str, line: int, *, numbers: bool = False) -> str:
        return self.value(values[column.number - 1])

    def write(self, record: Record, labels: Sequence[str], answer: Answer) -> str:
        """Return the text of the record with labels in their column or a new column, and probabilities in a new column.

        The names of new columns are added to the header. Other fields do not change.
        """
        separator = answer.separator or ","
        probabilities = [f"{probability:.4f}" for probability in answer.probabilities]
        added = {records.PROBABILITY: self.field(separator.join(probabilities))} if probabilities else {}
        fields = next(self.rows(Lines([record.text], ""), "")).values
        is_list = parse_list(self.at(fields, answer.column) if answer.column else "") is not None
        value = json.dumps([*answer.labels], ensure_ascii=False) if is_list else separator.join(answer.labels)
        new_labels = self.field(value)
        if answer.column is None:
            added = {records.LABEL: new_labels, **added}
        elif tuple(labels) != tuple(answer.labels):
            fields[answer.column.number - 1] = new_labels
        _, end = split_line_end(record.text)
        before, header = record.before, record.before.rstrip(" \r\n") if answer.header else ""
        if header:
            before = self.delimiter.join([header, *added]) + before[len(header) :]
        return before + self.delimiter.join([*fields, *added.values()]) + end


class TabSeparated(Dialect):
    """Tab-separated values without quoting."""

    name = "tsv"
    delimiter = "\t"

    def rows(self, lines: Iterable[tuple[int, str]], name: str) -> Iterator[Row]:
        return (Row(record, split_line_end(record.text)[0].split("\t")) for record in records.records(lines, name))

    def value(self, field: str) -> str:
        return field

    def field(self, value: str) -> str:
        return to_field(value)


class QuotedTable(Dialect):
    """Separated values, quoted if necessary (RFC 4180). Some formats of Excel have semicolons or tabs as delimiters."""

    sample_lines = 16 * SAMPLE_ROWS  # a record may have several lines

    def __init__(self, name: str, delimiter: str) -> None:
        self.name, self.delimiter = name, delimiter

    def rows(self, lines: Iterable[tuple[int, str]], name: str) -> Iterator[Row]:
        return starmap(Row, quoted_rows(records.records(lines, name, empty=True), name, self.delimiter))

    def value(self, field: str) -> str:
        return field[1:-1].replace('""', '"') if field.startswith('"') else field

    def field(self, value: str) -> str:
        return quote_field(value, self.delimiter)


DIALECTS = (TabSeparated(), QuotedTable("csv", ","), QuotedTable("csv-semicolon", ";"), QuotedTable("csv-tab", "\t"))
TABLES = {dialect.name: dialect for dialect in DIALECTS}
