"""Records: the lines of a file that hold data, with their numbers and the lines skipped before them; their columns.

This file knows no format. A NUL character is refused here, since no text has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import shorten
from typing import NamedTuple

from ensue.data.json_array import parted
from ensue.data.lines import Lines, is_blank
from ensue.errors import DataError, nearest
from ensue.stored import Count

SAMPLE_ROWS = 1000
SAMPLE_CHARACTERS = 1 << 22
"""The most rows, and characters, from which a format is recognized."""


class Record(NamedTuple):
    """A record with its line end, the number (from 1) of the line where it begins, and the lines skipped before it."""

    line: int
    text: str
    before: str = ""


def sample(lines: Lines, count: int = SAMPLE_ROWS) -> list[tuple[int, str]]:
    """The first lines with their numbers: `count` of them, or fewer if they are long. They can still be read."""
    few = 16
    while few < count and len(head := lines.numbered_head(few)) == few:
        if sum(len(line) for _, line in head) > SAMPLE_CHARACTERS:
            return head
        few *= 2
    return lines.numbered_head(min(few, count))


def records(lines: Iterable[tuple[int, str]], name: str, *, empty: bool = False) -> Iterator[Record]:
    """A record for each line; lines without anything are kept in `before` of the next, or are records if `empty`.

    Raises DataError for a NUL character.
    """
    passed: list[str] = []
    for number, line in lines:
        if "\0" in line:
            raise DataError(f"a NUL character in column {line.index(chr(0)) + 1}; expected text", name, number)
        if empty or not is_empty(line):
            yield Record(number, line, "".join(passed))
            passed = []
        else:
            passed.append(line)


def json_records(lines: Iterable[tuple[int, str]], *, is_array: bool) -> Iterator[Record]:
    """A record for each line that is not blank, or for each value of an array whose parts these are."""
    passed: list[str] = []
    for number, line in lines:
        before, text = parted(line) if is_array else ("", line)
        passed.append(before)
        if is_blank(text):
            passed.append(text)
        else:
            yield Record(number, text, "".join(passed))
            passed = []


def is_empty(line: str) -> bool:
    """Whether a line is empty or has only blanks. Tabs count, since they separate empty fields."""
    return not line.strip(" \r\n")


def without_end(text: str) -> tuple[str, str]:
    """A record and its line end (`\\n`, `\\r\\n` or nothing)."""
    body = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
    return body, text[len(body) :]


LONGEST_NAME = 40
_MOST_NAMES = 12


class Column(NamedTuple):
    """A column of a table: its number (from 1) and its name, if there is a header; or a JSON key (number 0)."""

    number: Count
    name: str = ""

    def __str__(self) -> str:
        number = [f"column {self.number}"] if self.number else []
        name = [f'"{" ".join(self.name.split())}"'] if self.name else []
        return " ".join(number + name)


def first_columns(rows: Sequence[Sequence[str]], file: str, *, header: bool, has_keys: bool) -> list[Column]:
    """The columns of a table by its first row: names if it is a header, keys if the rows have keys.

    Raises DataError for `file` without rows.
    """
    if not rows:
        raise DataError("no rows", file)
    if has_keys:
        return [Column(0, name) for name in rows[0]]
    return [Column(place, name.strip() if header else "") for place, name in enumerate(rows[0], 1)]


def group_and_others(columns: Sequence[Column], name: str, file: str) -> tuple[Column | None, list[Column]]:
    """The column of that name, or number (None for no name), and the others. Raises DataError if it is not one."""
    if not name:
        return None, list(columns)
    column = named_column(columns, name, file)
    (group,) = distinct_columns([column], columns, [name], file)
    return group, [other for other in columns if other != column]


def named_column(columns: Sequence[Column], name: str, file: str) -> Column:
    """The column of that name, or number. Raises DataError for `file` where there is none."""
    names = [column.name for column in columns]
    numbers = [str(column.number) for column in columns if column.number]
    for known in (names, numbers):
        if name in known:
            return columns[known.index(name)]
    if any(names):
        raise DataError(no_column(name, names), file, 1)
    raise DataError(f"no column {name}; there are {len(columns)}, without names", file, 1)


def no_column(name: str, known: Sequence[str]) -> str:
    """The message for a column that is missing, with the nearest name or all names."""
    shown = [shorten(other, LONGEST_NAME, placeholder="...") for other in known]
    there = ", ".join(f'"{other}"' for other in shown[:_MOST_NAMES]) + (", ..." if len(shown) > _MOST_NAMES else "")
    return f'no "{name}"' + (nearest(name, shown) or f"; there are {there}")


def distinct_columns(
    read: Iterable[Column], columns: Sequence[Column], chosen: Sequence[str], file: str
) -> tuple[Column, ...]:
    """The columns that are read. One whose name is that of another, too, is known by its number alone.

    Raises DataError for `file` if such a column is not among the `chosen` numbers.
    """
    columns_read = []
    for column in read:
        same = [str(other.number) for other in columns if column.name and other.name == column.name]
        if len(same) > 1 and str(column.number) not in chosen:
            names = f'{len(same)} columns are named "{column.name}" ({", ".join(same)})'
            raise DataError(f"{names}; expected one, or its number in place of the name", file, 1)
        columns_read.append(column._replace(name="") if len(same) > 1 else column)
    return tuple(columns_read)


def simplified(name: str) -> str:
    """The name of a column for comparisons: casefolded letters and digits, and `#`."""
    return re.sub(r"[^\w#]|_", "", name.casefold())


def columns_counted(count: int) -> str:
    """`1 column`, `2 columns`."""
    return f"{count} column" + ("s" if count != 1 else "")
