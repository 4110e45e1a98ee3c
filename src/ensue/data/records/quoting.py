"""Rows of values as RFC 4180 has them, with line breaks inside quotes, or with semicolons. Fields stay as written.

A quote counts only where a field begins with one; elsewhere it is a character like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

from ensue.data.decoding import MAX_CHARACTERS
from ensue.data.records.record import Record, is_empty, records, without_end
from ensue.errors import DataError

_ROWS_TO_LOOK_AT = 100
DELIMITERS = {",": "comma", ";": "semicolon"}
_ANNOUNCED = re.compile(r'"?sep=([,;\t])"?\s*', re.IGNORECASE)
_TO_CLOSING_QUOTE = re.compile(r'[^"]*+(?:""[^"]*+)*+')
_TO_BE_QUOTED = {delimiter: re.compile(f'["\r\n{delimiter}]') for delimiter in DELIMITERS}


def quoted_rows(lines: Iterable[Record], name: str, delimiter: str) -> Iterator[tuple[Record, list[str]]]:
    """Records with their fields as written, with quotes. Joined by the delimiter, they are the record without its line
    end.

    Empty lines between records are passed over, those inside quotes are not. Raises DataError for a quote that is not
    closed (naming the line where it opens) and for text behind a closing quote.
    """
    passed: list[str] = []  # empty lines
    read: list[Record] = []  # the lines of a record that is not complete
    row = _Row(name, delimiter)
    for line in lines:
        if not read and is_empty(line.text):
            passed.append(line.text)
            continue
        read.append(line)
        if row.is_complete_with(line):
            yield Record(read[0].line, "".join(part.text for part in read), "".join(passed)), row.fields
            passed, read, row = [], [], _Row(name, delimiter)
    if read:
        raise row.unclosed()


def unquoted(field: str) -> str:
    """The value of a field as it is written, without its quotes."""
    return field[1:-1].replace('""', '"') if field.startswith('"') else field


def quoted(value: str, delimiter: str) -> str:
    """The value as a field, in quotes only if it needs them."""
    return '"' + value.replace('"', '""') + '"' if _TO_BE_QUOTED[delimiter].search(value) else value


def announced_delimiter(line: str) -> str:
    """The delimiter that a first line such as `sep=;` names, as Excel writes and reads it; "" for another line."""
    found = _ANNOUNCED.fullmatch(line)
    return found[1] if found else ""


def seen_delimiter(lines: Iterable[tuple[int, str]], name: str) -> str:
    """The announced delimiter, or that with which most first rows have as many fields as the first; else a comma."""
    lines = list(lines)
    if lines and (announced := announced_delimiter(lines[0][1])):
        return announced
    return max(DELIMITERS, key=lambda delimiter: _agreement(lines, name, delimiter))


def looks_delimited(lines: Iterable[tuple[int, str]], name: str) -> bool:
    """Whether there are several rows, all with as many fields, which are more than one."""
    lines = list(lines)
    return len(lines) > 1 and any(_agreement(lines, name, delimiter) == 1 for delimiter in DELIMITERS)


def _agreement(lines: list[tuple[int, str]], name: str, delimiter: str) -> float:
    """The share of the rows that have as many fields as the first; 0 where that has one."""
    widths: list[int] = []
    with suppress(DataError):  # the sample may end inside quotes
        rows = quoted_rows(records(lines, name, empty=True), name, delimiter)
        widths.extend(len(fields) for _, fields in islice(rows, _ROWS_TO_LOOK_AT))
    return widths.count(widths[0]) / len(widths) if widths and widths[0] > 1 else 0.0


class _Row:
    """The fields of one record, taken from it line by line."""

    def __init__(self, name: str, delimiter: str) -> None:
        self.name, self.delimiter = name, delimiter
        self.fields: list[str] = []
        self._inside: list[str] = []  # the parts of a field whose quote is open
        self._opened = 0
        self._size = 0

    def is_complete_with(self, line: Record) -> bool:
        body, _ = without_end(line.text)
        if not self._inside and '"' not in body:
            self.fields = body.split(self.delimiter)
            return True
        self._size += len(line.text)
        if self._size > MAX_CHARACTERS:
            raise self.unclosed(f" within {MAX_CHARACTERS:,} characters")
        if self._inside and '"' not in body:
            self._inside.append(line.text)
            return False
        position: int | None = 0
        while position is not None and position <= len(body):
            if self._inside:
                position = self._rest_of_quoted(line, body, position)
            elif body.startswith('"', position):
                self._inside, self._opened = ['"'], line.line
                position += 1
            else:
                stop = body.find(self.delimiter, position)
                stop = len(body) if stop < 0 else stop
                self.fields.append(body[position:stop])
                position = stop + 1
        return position is not None

    def _rest_of_quoted(self, line: Record, body: str, position: int) -> int | None:
        """The place behind the field and its delimiter; None if it goes on in the next line."""
        match = _TO_CLOSING_QUOTE.match(line.text, position)
        assert match is not None  # it also matches nothing
        stop = match.end() + 1
        self._inside.append(line.text[position:stop])
        if match.end() == len(line.text):
            return None
        self.fields.append("".join(self._inside))
        self._inside = []
        if stop < len(body) and body[stop] != self.delimiter:
            found = body[stop : stop + 10]
            expected = f"expected a {DELIMITERS[self.delimiter]} behind the closing quote"
            raise DataError(f"{expected}, found {found!r}", self.name, line.line)
        return stop + 1

    def unclosed(self, where: str = "") -> DataError:
        return DataError(f"the quote that opens here is not closed{where}", self.name, self._opened)
