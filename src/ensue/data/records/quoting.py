"""Rows of quoted fields (RFC 4180), separated by commas, semicolons or tabs. Quoted fields may contain line ends.

Only a quote at the beginning of a field opens a quoted field; elsewhere a quote is an ordinary character.
"""

import re
from ast import literal_eval
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from ensue.data.decoding import MAX_CHARACTERS
from ensue.data.records.record import Record, is_empty, records, split_line_end
from ensue.errors import DataError
from ensue.parsing import parse_json

_NUM_SAMPLE_ROWS = 100
_MAX_LIST_CHARACTERS = 10_000
"""The maximum length of a field with a list."""
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
_DECLARED = re.compile(r'"?sep=([,;\t])"?\s*', re.IGNORECASE)
_TO_CLOSING_QUOTE = re.compile(r'[^"]*+(?:""[^"]*+)*+')
_TO_BE_QUOTED = {delimiter: re.compile(f'["\r\n{delimiter}]') for delimiter in DELIMITERS}


def quoted_rows(lines: Iterable[Record], name: str, delimiter: str) -> Iterator[tuple[Record, list[str]]]:
    """Yield the records of a table, with their fields as written, including quotes.

    The fields, joined by the delimiter, are the record without its line end. Empty lines between records belong to the
    next record. Raises DataError for an unclosed quote (with the line where it opens), and for text after a quote.
    """
    empty_lines: list[str] = []
    record_lines: list[Record] = []  # the lines of an incomplete record
    row = _Row(name, delimiter)
    for line in lines:
        if not record_lines and is_empty(line.text):
            empty_lines.append(line.text)
            continue
        record_lines.append(line)
        if row.add(line):
            text = "".join(record.text for record in record_lines)
            yield Record(record_lines[0].line, text, "".join(empty_lines)), row.fields
            empty_lines, record_lines, row = [], [], _Row(name, delimiter)
    if record_lines:
        raise row.unclosed_quote()


def quote_field(value: str, delimiter: str) -> str:
    """Return the written field of a value, which is quoted only if necessary."""
    return '"' + value.replace('"', '""') + '"' if _TO_BE_QUOTED[delimiter].search(value) else value


def parse_list(field: str) -> list[Any] | None:
    """Return the strings and integers of a list such as ["a", "b"] or ['a', 'b'] in a field; None for other fields."""
    if (field[:1], field[-1:]) != ("[", "]") or len(field) > _MAX_LIST_CHARACTERS:
        return None
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        value = parse_json(field) if "\\" in field else literal_eval(field)
        return value if isinstance(value, list) and all(isinstance(entry, str | int) for entry in value) else None
    return None


def declared_delimiter(line: str) -> str:
    """Return the delimiter in a line such as `sep=;`, which Excel writes at the beginning; "" for other lines."""
    result = _DECLARED.fullmatch(line)
    return result[1] if result else ""


def detect_delimiter(lines: Iterable[tuple[int, str]], name: str) -> str:
    """Return the declared delimiter, or the delimiter by which most rows have as many fields as the first row."""
    lines = list(lines)
    if lines and (declared := declared_delimiter(lines[0][1])):
        return declared
    return max(DELIMITERS, key=lambda delimiter: _equal_width_fraction(lines, name, delimiter))


def looks_delimited(lines: Iterable[tuple[int, str]], name: str) -> bool:
    """Return whether there are several rows that have the same number of fields, which is at least two."""
    lines = list(lines)
    return len(lines) > 1 and any(_equal_width_fraction(lines, name, delimiter) == 1 for delimiter in DELIMITERS)


def has_quoted_tabs(lines: Iterable[tuple[int, str]], name: str) -> bool:
    """Return whether rows of equal width, separated by tabs, have quoted fields with line ends or quotes, but no tabs.

    Excel quotes such fields in text files. In other tables with tabs, quotes are ordinary characters.
    """
    rows = _sample_fields(lines, name, "\t")
    fields = [field[1:-1] for row in rows for field in row if field.startswith('"')]
    is_quoted = any('""' in field or "\n" in field for field in fields) and not any("\t" in field for field in fields)
    return is_quoted and len(rows[0]) > 1 and len({*map(len, rows)}) == 1


def _equal_width_fraction(lines: list[tuple[int, str]], name: str, delimiter: str) -> float:
    """Return the fraction of rows with the same number of fields as the first row; 0 if the first row has one field."""
    widths = [*map(len, _sample_fields(lines, name, delimiter))]
    return widths.count(widths[0]) / len(widths) if widths and widths[0] > 1 else 0.0


def _sample_fields(lines: Iterable[tuple[int, str]], name: str, delimiter: str) -> list[list[str]]:
    rows: list[list[str]] = []
    with suppress(DataError):  # the sample may end inside quotes
        records_of_rows = quoted_rows(records(lines, name, empty=True), name, delimiter)
        rows.extend(fields for _, fields in islice(records_of_rows, _NUM_SAMPLE_ROWS))
    return rows


class _Row:
    """A record that is read line by line."""

    def __init__(self, name: str, delimiter: str) -> None:
        self.name, self.delimiter = name, delimiter
        self.fields: list[str] = []
        self._open_field: list[str] = []  # the text of a field whose quote is open
        self._quote_line = 0
        self._size = 0

    def add(self, line: Record) -> bool:
        """Add a line, and return whether the record is complete."""
        body, _ = split_line_end(line.text)
        if not self._open_field and '"' not in body:
            self.fields = body.split(self.delimiter)
            return True
        self._size += len(line.text)
        if self._size > MAX_CHARACTERS:
            raise self.unclosed_quote(f" within {MAX_CHARACTERS:,} characters")
        if self._open_field and '"' not in body:
            self._open_field.append(line.text)
            return False
        position: int | None = 0
        while position is not None and position <= len(body):
            if self._open_field:
                position = self._read_quoted(line, body, position)
            elif body.startswith('"', position):
                self._open_field, self._quote_line = ['"'], line.line
                position += 1
            else:
                stop = body.find(self.delimiter, position)
                stop = len(body) if stop < 0 else stop
                self.fields.append(body[position:stop])
                position = stop + 1
        return position is not None

    def _read_quoted(self, line: Record, body: str, position: int) -> int | None:
        match = _TO_CLOSING_QUOTE.match(line.text, position)
        assert match is not None  # the pattern also matches the empty string
        stop = match.end() + 1
        self._open_field.append(line.text[position:stop])
        if match.end() == len(line.text):
            return None
        self.fields.append("".join(self._open_field))
        self._open_field = []
        if stop < len(body) and body[stop] != self.delimiter:
            expected = f"expected a {DELIMITERS[self.delimiter]} after the closing quote"
            raise DataError(f"{expected}, found {body[stop : stop + 10]!r}", self.name, line.line)
        return stop + 1

    def unclosed_quote(self, where: str = "") -> DataError:
        return DataError(f"the quote that opens here is not closed{where}", self.name, self._quote_line)
