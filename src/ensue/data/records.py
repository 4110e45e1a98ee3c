"""Physical lines to records: what holds something, with its line number and what was passed over before it.

It knows no format. Here end the texts that are none: NUL characters and lines without an end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ensue.data.decoding import decoded
from ensue.data.lines import Lines
from ensue.errors import DataError

SAMPLE_ROWS = 1000
SAMPLE_CHARACTERS = 1 << 22
"""So much of a file says what it is."""
MAX_CHARACTERS = 1 << 24
"""A longer record is an error: a quote that is not closed or a file without line ends must not fill the memory."""


class Record(NamedTuple):
    """A record with its line end, the number (from 1) of the line where it begins, and what was passed over before."""

    line: int
    text: str
    before: str = ""


def lines_of(path: Path, *, encoding: str = "utf-8") -> Lines:
    """The lines of a file; reading them raises DataError for one of more than `MAX_CHARACTERS`."""
    return Lines(bounded(decoded(path, encoding), str(path)), str(path))


def bounded(chunks: Iterable[str], name: str) -> Iterator[str]:
    """The chunks as they are. DataError where a line becomes longer than `MAX_CHARACTERS`."""
    number, size = 1, 0
    for chunk in chunks:
        end = chunk.rfind("\n")
        size = len(chunk) - end - 1 if end >= 0 else size + len(chunk)
        number += chunk.count("\n")
        if size > MAX_CHARACTERS:
            raise DataError(f"a line of more than {MAX_CHARACTERS:,} characters; expected a line end", name, number)
        yield chunk


def sample(lines: Lines, count: int = SAMPLE_ROWS) -> list[str]:
    """The first lines, which are still to be read: `count` of them, or fewer where they are long."""
    few = 16
    while few < count and len(head := lines.head(few)) == few:
        if sum(map(len, head)) > SAMPLE_CHARACTERS:
            return head
        few *= 2
    return lines.head(min(few, count))


def records(lines: Iterable[tuple[int, str]], name: str, *, empty: bool = False) -> Iterator[Record]:
    """A record for each line; lines without anything are kept in `before` of the next, or are records if `empty`.

    DataError for a NUL character.
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


def is_empty(line: str) -> bool:
    """Whether a line has nothing, or blanks only (tabs are empty fields)."""
    return not line.strip(" \r\n")


def without_end(text: str) -> tuple[str, str]:
    """A record and its line end (`\\n`, `\\r\\n` or nothing)."""
    body = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
    return body, text[len(body) :]
