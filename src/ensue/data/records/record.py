"""Records: the lines of a file that hold data, with their numbers and the lines skipped before them.

This file knows no format. A NUL character is refused here, since no text has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ensue.data.json_array import parted
from ensue.data.lines import Lines, is_blank
from ensue.errors import DataError

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
