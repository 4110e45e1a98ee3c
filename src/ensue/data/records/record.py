"""Records (lines, rows or objects of a file), their columns, and the abstract base class of readers of records."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from textwrap import shorten
from typing import Any, NamedTuple, Self
from unicodedata import normalize

from ensue.data.json_array import split_part
from ensue.data.lines import Lines, is_blank
from ensue.errors import DataError, nearest
from ensue.stored import Count

SAMPLE_ROWS = 1000
SAMPLE_CHARACTERS = 1 << 22
"""The maximum numbers of rows and characters for the detection of a format."""


class Record(NamedTuple):
    """A record with its line end, the number of its first line (from 1), and the skipped text before it."""

    line: int
    text: str
    before: str = ""


def sample(lines: Lines, count: int = SAMPLE_ROWS) -> list[tuple[int, str]]:
    """Return the first `count` lines, or fewer if they are long, with their numbers. No line is consumed."""
    size = 16  # doubled until the lines have enough characters
    while size < count and len(head := lines.numbered_head(size)) == size:
        if sum(len(line) for _, line in head) > SAMPLE_CHARACTERS:
            return head
        size *= 2
    return lines.numbered_head(min(size, count))


def records(lines: Iterable[tuple[int, str]], name: str, *, empty: bool = False) -> Iterator[Record]:
    """Yield a record for each line. Empty lines are records if `empty`; otherwise they belong to the next record.

    Raises DataError for a NUL character.
    """
    empty_lines: list[str] = []
    for number, line in lines:
        if "\0" in line:
            raise DataError(f"a NUL character in column {line.index(chr(0)) + 1}; expected text", name, number)
        if empty or not is_empty(line):
            yield Record(number, line, "".join(empty_lines))
            empty_lines = []
        else:
            empty_lines.append(line)


def json_records(lines: Iterable[tuple[int, str]], *, is_array: bool) -> Iterator[Record]:
    """Yield a record for each line that is not blank, or for each value of an array (`array_chunks`)."""
    skipped: list[str] = []
    for number, line in lines:
        before, text = split_part(line) if is_array else ("", line)
        skipped.append(before)
        if is_blank(text):
            skipped.append(text)
        else:
            yield Record(number, text, "".join(skipped))
            skipped = []


def is_empty(line: str) -> bool:
    """Return whether a line has only blanks and line ends. A line with tabs is not empty: it has empty fields."""
    return not line.strip(" \r\n")


def split_line_end(text: str) -> tuple[str, str]:
    """Split a record into its text and its line end (`\\n`, `\\r\\n` or "")."""
    body = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
    return body, text[len(body) :]


MAX_NAME_CHARACTERS = 40
"""The maximum length of the name of a column in a header."""
_MAX_NAMES_SHOWN = 12


class Column(NamedTuple):
    """A column of a table, with its number (from 1) and its name in the header, or a JSON key (number 0)."""

    number: Count
    name: str = ""

    def __str__(self) -> str:
        number = [f"column {self.number}"] if self.number else []
        name = [f'"{" ".join(self.name.split())}"'] if self.name else []
        return " ".join(number + name)


def first_columns(rows: Sequence[Sequence[str]], file: str, *, header: bool, has_keys: bool) -> list[Column]:
    """Return the columns of a table whose first row may be a header or keys. Raises DataError without rows."""
    if not rows:
        raise DataError("no rows", file)
    if has_keys:
        return [Column(0, name) for name in rows[0]]
    return [Column(number, name.strip() if header else "") for number, name in enumerate(rows[0], 1)]


def split_group(columns: Sequence[Column], name: str, file: str) -> tuple[Column | None, list[Column]]:
    """Return the column of groups and the other columns. Without a `name`, there is no column of groups.

    Raises DataError if no column has this name.
    """
    if not name:
        return None, list(columns)
    column = named_column(columns, name, file)
    (group,) = distinct_columns([column], columns, [name], file)
    return group, [other for other in columns if other != column]


def named_column(columns: Sequence[Column], name: str, file: str, key: str = "") -> Column:
    """Return the column with a name or number, from a `key` of `[data]`. Raises DataError if it is missing."""
    names = [column.name for column in columns]
    numbers = [str(column.number) for column in columns if column.number]
    for identifiers in (names, numbers):
        if name in identifiers:
            return columns[identifiers.index(name)]
    if any(names):
        raise column_error(name, names, key, file, 1)
    raise DataError(f"no column {name}; there are {len(columns)}, without names", file, 1)


def describe_missing_column(name: str, known: Sequence[str]) -> str:
    """Return the error message for a missing column, with a similar name or all names."""
    shown = [shorten(other, MAX_NAME_CHARACTERS, placeholder="...") for other in known]
    listed_names = ", ".join(f'"{other}"' for other in shown[:_MAX_NAMES_SHOWN])
    ellipsis = ", ..." if len(shown) > _MAX_NAMES_SHOWN else ""
    return f'no "{name}"' + (nearest(name, shown) or f"; there are {listed_names}{ellipsis}" * bool(known))


def column_error(name: str, known: Sequence[str], key: str, path: str | None, line: int | None) -> DataError:
    """Return an error for a missing column, with the setting of the `key` of `[data]` that names it; "": none."""
    problem, setting = describe_missing_column(name, known), f"--set data.{key}=..."
    link = f"{' ' if problem.endswith('?') else '; '}{setting} names the column of {key}" if key else ""
    return DataError(problem + link, path, line, options={setting: f"--{key.replace('texts', 'text')} NAME"})


def distinct_columns(
    columns_to_read: Iterable[Column], columns: Sequence[Column], chosen: Sequence[str], file: str
) -> tuple[Column, ...]:
    """Return the columns to read, without names that occur twice, since such columns are identified by their numbers.

    Raises DataError if a column has the name of another column, and the user has not `chosen` it by its number.
    """
    columns_read = []
    for column in columns_to_read:
        same_name = [str(other.number) for other in columns if column.name and other.name == column.name]
        if len(same_name) > 1 and str(column.number) not in chosen:
            names = f'{len(same_name)} columns are named "{column.name}" ({", ".join(same_name)})'
            raise DataError(f"{names}; expected the number of a column in place of the name", file, 1)
        columns_read.append(column._replace(name="") if len(same_name) > 1 else column)
    return tuple(columns_read)


def simplify(name: str) -> str:
    """Normalize the name of a column for comparison: keep letters, digits and `#`, and ignore case."""
    return re.sub(r"[^\w#]|_", "", normalize("NFC", name).casefold())


LABEL, PROBABILITY = "label", "probability"
"""The names of the columns or keys that are added for predicted labels and their probabilities."""


class Row(NamedTuple):
    """A record and its values: written fields, or a JSON object."""

    record: Record
    values: Any


class Answer(NamedTuple):
    """Labels to write to a record, and their probabilities."""

    column: Column | None
    """The column of the labels; None to add a column."""
    labels: Sequence[str]
    probabilities: Sequence[float] = ()
    separator: str = ""
    """The separator of several labels in one field."""
    header: bool = False
    """Whether the table has a header, which gets the names of new columns."""


class Reader(ABC):
    """A reader and writer of records in one format. Instances have no mutable state."""

    name: str
    has_keys = False
    """Whether values are at keys. Otherwise, values are in numbered columns, which have names if there is a header."""
    is_lenient = False
    """Whether missing texts are read as empty texts instead of raising an error."""

    @abstractmethod
    def first_rows(self, lines: Lines) -> list[list[str]]:
        """Return the keys, if there are any, and the values of the first records, without consuming lines."""

    @abstractmethod
    def read(self, lines: Lines, *, header: bool, needed: Sequence[Column]) -> Iterator[Row]:
        """Yield the records in constant memory. Raises DataError (file:line) for an invalid record."""

    @abstractmethod
    def at(self, values: Any, column: Column) -> Any:
        """Return the value in a column; None if it is missing."""

    @abstractmethod
    def text(self, values: Any, column: Column, name: str, line: int, *, numbers: bool = False) -> str:
        """Return the text in a column; with `numbers`, also the text of a number. Raises DataError for other values."""

    @abstractmethod
    def write(self, record: Record, labels: Sequence[str], answer: Answer) -> str:
        """Return the text of a record in which an answer replaces its `labels`. New values are added at the end."""

    def to_lenient(self) -> Self:
        """Return a copy of this reader that reads missing texts as empty texts."""
        result = copy(self)
        result.is_lenient = True
        return result

    def to_flat(self) -> "Reader":
        """Return a reader that flattens inner objects of texts."""
        return self
