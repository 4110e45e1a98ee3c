"""Rows of comma-separated values as RFC 4180 has them, with line breaks inside quotes. Fields stay as they are written.

A quote counts only where a field begins with one; elsewhere it is a character like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ensue.data.decoding import MAX_CHARACTERS
from ensue.data.records import Record, is_empty, without_end
from ensue.errors import DataError

DELIMITER = ","
_TO_CLOSING_QUOTE = re.compile(r'[^"]*+(?:""[^"]*+)*+')
_TO_BE_QUOTED = re.compile(r'[",\r\n]')


def quoted_rows(lines: Iterable[Record], name: str) -> Iterator[tuple[Record, list[str]]]:
    """Records with their fields as written, quotes included: joined by commas they are the record without its end.

    Empty lines between records are passed over, those inside quotes are not. DataError for a quote that is not closed
    (naming the line where it opens) and for text behind a closing quote.
    """
    passed: list[str] = []  # empty lines
    read: list[Record] = []  # the lines of a record that is not complete
    row = _Row(name)
    for line in lines:
        if not read and is_empty(line.text):
            passed.append(line.text)
            continue
        read.append(line)
        if row.is_complete_with(line):
            yield Record(read[0].line, "".join(part.text for part in read), "".join(passed)), row.fields
            passed, read, row = [], [], _Row(name)
    if read:
        raise row.unclosed()


def unquoted(field: str) -> str:
    """The value of a field as it is written, without its quotes."""
    return field[1:-1].replace('""', '"') if field.startswith('"') else field


def quoted(value: str) -> str:
    """The value as a field, in quotes only if it needs them."""
    return '"' + value.replace('"', '""') + '"' if _TO_BE_QUOTED.search(value) else value


class _Row:
    """The fields of one record, taken from it line by line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: list[str] = []
        self._inside: list[str] = []  # the parts of a field whose quote is open
        self._opened = 0
        self._size = 0

    def is_complete_with(self, line: Record) -> bool:
        body, _ = without_end(line.text)
        if not self._inside and '"' not in body:
            self.fields = body.split(DELIMITER)
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
                stop = body.find(DELIMITER, position)
                stop = len(body) if stop < 0 else stop
                self.fields.append(body[position:stop])
                position = stop + 1
        return position is not None

    def _rest_of_quoted(self, line: Record, body: str, position: int) -> int | None:
        """The place behind the field and its comma; None if it goes on in the next line."""
        match = _TO_CLOSING_QUOTE.match(line.text, position)
        assert match is not None  # it also matches nothing
        stop = match.end() + 1
        self._inside.append(line.text[position:stop])
        if match.end() == len(line.text):
            return None
        self.fields.append("".join(self._inside))
        self._inside = []
        if stop < len(body) and body[stop] != DELIMITER:
            found = body[stop : stop + 10]
            raise DataError(f"expected a comma behind the closing quote, found {found!r}", self.name, line.line)
        return stop + 1

    def unclosed(self, where: str = "") -> DataError:
        return DataError(f"the quote that opens here is not closed{where}", self.name, self._opened)
