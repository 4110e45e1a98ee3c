"""The physical lines of a file or a stream with their numbers. Formats know their meaning."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, Self

from ensue.data.decoding import MARK, MAX_CHARACTERS, MAX_COLUMNS
from ensue.data.json_array import array_parts, begins_array
from ensue.data.row_formats import text_blocks
from ensue.errors import DataError


class Lines:
    """Lines with their ends, read once. A line ends at `\\n` and nowhere else: `\\u2028` and its kin stand inside.

    `name` is what messages call the file. Reading raises DataError for a line of more than `MAX_CHARACTERS`.
    """

    is_array = False
    """Whether these are the values of a JSON array in place of lines, each with the text before it (`array_parts`)."""
    mark = ""
    """The byte order mark before the first line, once that was read."""

    def __init__(self, chunks: Iterable[str], name: str) -> None:
        self.name = name
        self._chunks = self._without_mark(iter(chunks))
        self._lines: Iterator[tuple[int, str]] | None = None
        self._head: list[tuple[int, str]] = []

    @classmethod
    def of(cls, path: Path, *, encoding: str = "utf-8", nested: bool = False) -> Self:
        """The decompressed lines of a file, or a binary table's rows as JSON. `nested`: spans may overlap."""
        return cls(text_blocks(path, encoding, nested=nested, marked=True), str(path))

    def _without_mark(self, chunks: Iterator[str]) -> Iterator[str]:
        first = next(chunks, "")
        self.mark = MARK if first.startswith(MARK) else ""
        yield from chain(filter(None, [first.removeprefix(MARK)]), chunks)

    def split_array(self) -> None:
        """Cuts the text into values if it begins like a JSON array of objects. Call it before reading."""
        if self._lines is None:
            self.is_array, self._chunks = begins_array(self._chunks)

    def is_empty(self) -> bool:
        """Whether there is no character. Nothing counts as read."""
        if self._lines is None:
            first = next(filter(None, self._chunks), "")
            self._chunks = chain([first] if first else [], self._chunks)
            return not first
        return not self.head(1)

    def head(self, count: int) -> list[str]:
        """The first `count` lines (or all that there are), which are still to be read."""
        return [line for _, line in self.numbered_head(count)]

    def numbered_head(self, count: int) -> list[tuple[int, str]]:
        """The head with the numbers of its lines."""
        self._head += islice(self._unread(), max(0, count - len(self._head)))
        return self._head[:count]

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Numbers from 1, and the lines."""
        return chain(self._head, self._unread())

    def _unread(self) -> Iterator[tuple[int, str]]:
        if self._lines is None:
            is_array, chunks = self.is_array, self._chunks
            self._lines = array_parts(chunks, self.name) if is_array else enumerate(_split(chunks, self.name), 1)
        return self._lines


class KeptLines(Lines):
    """Lines that are kept, each from when it is read until `forget`."""

    def __init__(self, lines: Lines) -> None:
        super().__init__((), lines.name)
        self._of = lines
        self.is_array = lines.is_array
        self._kept: list[str] = []

    def split_array(self) -> None:
        self._of.split_array()
        self.is_array = self._of.is_array

    def numbered_head(self, count: int) -> list[tuple[int, str]]:
        return self._of.numbered_head(count)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for number, line in self._of:
            self._kept.append(line)
            yield number, line

    def forget(self) -> None:
        """Drops the lines that have been kept."""
        self._kept.clear()

    def kept(self) -> str:
        """The lines that were read since `forget`, joined."""
        return "".join(self._kept)


MAX_ROWS = 1 << 18
"""A paragraph with more lines is an error: a file without blank lines must not be one sentence that fills memory."""


class Paragraph(NamedTuple):
    """Consecutive lines; `first` is the number of the first one."""

    first: int
    lines: list[str]


def missing_end(text: str) -> str:
    """The line end that a text needs before another one can follow; "" if it has one."""
    return "\n" if text and not text.endswith("\n") else ""


def is_blank(line: str) -> bool:
    """Whether a line has only blanks, tabs and its line end."""
    return not line.strip(" \t\r\n")


def paragraphs(lines: Lines, is_aside: Callable[[str], bool]) -> Iterator[Paragraph]:
    """The sentences of a format with a row for each word: each a run of rows that a blank line or an aside ends.

    An aside is a line that is neither row nor blank, such as a comment. A paragraph begins with all that stands between
    it and the one before, and ends with its blank line; the last one takes all the rest. So the paragraphs joined are
    the lines, except that a file without rows has no paragraph.
    """
    waiting: Paragraph | None = None
    current, has_rows = Paragraph(1, []), False
    for number, line in lines:
        blank = is_blank(line)
        if len(current.lines) > MAX_ROWS:
            raise DataError(f"more than {MAX_ROWS:,} lines without a blank one between sentences", lines.name, number)
        if not blank and not is_aside(line):
            has_rows = True
        elif has_rows:
            current.lines.extend([line] if blank else [])
            if waiting:
                yield waiting
            waiting, has_rows = current, False
            current = Paragraph(number + 1, []) if blank else Paragraph(number, [line])
            continue
        current.lines.append(line)
    if waiting and has_rows:
        yield waiting
    elif waiting:
        waiting.lines.extend(current.lines)
        yield waiting
    if has_rows:
        yield current


def _split(chunks: Iterable[str], name: str) -> Iterator[str]:
    open_line: list[str] = []
    number, size = 1, 0
    for chunk in chunks:
        lines = io.StringIO(chunk, newline="\n").readlines()
        if lines and open_line:
            size += len(lines[0])
            open_line.append(lines[0])
            if not lines[0].endswith("\n"):
                if size > MAX_CHARACTERS:
                    raise _too_long(name, number)
                continue
            lines[0] = "".join(open_line)
            open_line = []
        number += len(lines)
        if lines and not lines[-1].endswith("\n"):
            open_line, number = [lines.pop()], number - 1
            size = len(open_line[0])
        yield from lines
        if open_line and size > MAX_CHARACTERS:
            raise _too_long(name, number)
    if open_line:
        yield "".join(open_line)


def checked_width(width: int, name: str, line: int) -> int:
    """Return the number of columns of a row. Raises DataError for more than `MAX_COLUMNS`."""
    if width > MAX_COLUMNS:
        raise DataError(f"{width:,} columns; expected at most {MAX_COLUMNS:,}", name, line)
    return width


def _too_long(name: str, number: int) -> DataError:
    return DataError(f"a line of more than {MAX_CHARACTERS:,} characters; expected a line end", name, number)
