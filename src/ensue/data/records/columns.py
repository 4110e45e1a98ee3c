"""Columns of tables and keys of JSON: how they are named, found by name or number, and missed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from textwrap import shorten
from typing import NamedTuple

from ensue.errors import DataError, nearest
from ensue.stored import Count

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


def told_apart(
    read: Iterable[Column], columns: Sequence[Column], chosen: Sequence[str], file: str
) -> tuple[Column, ...]:
    """The columns that are read. One whose name is that of another, too, is known by its number alone.

    Raises DataError for `file` if such a column is not among the `chosen` numbers.
    """
    found = []
    for column in read:
        same = [str(other.number) for other in columns if column.name and other.name == column.name]
        if len(same) > 1 and str(column.number) not in chosen:
            those = f'{len(same)} columns are named "{column.name}" ({", ".join(same)})'
            raise DataError(f"{those}; expected one, or its number in place of the name", file, 1)
        found.append(column._replace(name="") if len(same) > 1 else column)
    return tuple(found)


def simplified(name: str) -> str:
    """The name of a column for comparisons: casefolded letters and digits, and `#`."""
    return re.sub(r"[^\w#]|_", "", name.casefold())


def columns_counted(count: int) -> str:
    """`1 column`, `2 columns`."""
    return f"{count} column" + ("s" if count != 1 else "")
