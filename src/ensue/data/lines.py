"""Numbered lines of a file or a stream, and the columns of lines with one word each."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

from ensue.data.decoding import BOM, MAX_COLUMNS, split_lines
from ensue.data.json_array import array_chunks, begins_array
from ensue.data.row_formats import text_blocks
from ensue.errors import DataError
from ensue.parsing import ParseError, parse_json

ON_PROGRESS: ContextVar[Callable[[str, float], None] | None] = ContextVar("on_progress", default=None)
"""Receives a unit ("bytes", "texts" or "share") and the number of newly completed units, if the progress is shown."""


class Lines:
    """The lines of a text with their line ends, which can be read once. Only `\\n` ends a line, not `\\u2028` etc.

    `name` is the name of the file in messages. Reading raises DataError for a line above `MAX_CHARACTERS`.
    """

    is_array = False
    """Whether iteration yields the values of a JSON array (`array_chunks`) instead of lines."""
    mark = ""
    """The byte order mark before the first line, which is set when the first line is read."""

    def __init__(self, chunks: Iterable[str], name: str, numbers: deque[int] | None = None) -> None:
        """Number the lines from 1, or by `numbers`, to which `chunks` appends the line numbers of a converted file."""
        self.name, self._numbers = name, deque[int]() if numbers is None else numbers
        self._chunks = self._remove_mark(iter(chunks))
        self._lines: Iterator[tuple[int, str]] | None = None
        self._head: list[tuple[int, str]] = []

    @classmethod
    def of(cls, path: Path, *, encoding: str = "utf-8", nested: bool = False) -> Self:
        """Return the decompressed lines of a file, or the rows of a binary table as JSON lines.

        With `nested`, overlapping spans in the annotations of brat are not an error.
        """
        numbers = deque[int]()
        return cls(text_blocks(path, encoding, numbers, nested=nested, marked=True), str(path), numbers)

    @classmethod
    def numbered(cls, lines: Iterable[tuple[int, str]], name: str) -> Self:
        """Return lines with these numbers."""
        result = cls((), name)
        result._lines = iter(lines)
        return result

    def _remove_mark(self, chunks: Iterator[str]) -> Iterator[str]:
        first = next(chunks, "")
        self.mark = BOM if first.startswith(BOM) else ""
        yield from chain(filter(None, [first.removeprefix(BOM)]), chunks)

    def split_array(self) -> None:
        """If no line was read, and the text begins with a JSON array of objects, make iteration yield its values."""
        if self._lines is None:
            self.is_array, self._chunks = begins_array(self._chunks)

    def is_empty(self) -> bool:
        """Return whether the text is empty. No line is consumed."""
        if self._lines is None:
            first = next(filter(None, self._chunks), "")
            self._chunks = chain([first] if first else [], self._chunks)
            return not first
        return not self.head(1)

    def head(self, count: int) -> list[str]:
        """Return the first `count` lines without consuming them."""
        return [line for _, line in self.numbered_head(count)]

    def numbered_head(self, count: int) -> list[tuple[int, str]]:
        """Return the first `count` lines with their numbers without consuming them."""
        self._head += islice(self._unread(), max(0, count - len(self._head)))
        return self._head[:count]

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yield the number (from 1) and the text of each line that has not been consumed."""
        return chain(self._head, self._unread())

    def _unread(self) -> Iterator[tuple[int, str]]:
        if self._lines is None:
            is_array, chunks = self.is_array, self._chunks
            lines = array_chunks(chunks, self.name) if is_array else enumerate(split_lines(chunks, self.name), 1)
            self._lines = ((self._numbers.popleft() if self._numbers else number, line) for number, line in lines)
            if (on_progress := ON_PROGRESS.get()) is not None:
                self._lines = _report(self._lines, on_progress)
        return self._lines


def _report(lines: Iterator[tuple[int, str]], on_progress: Callable[[str, float], None]) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        on_progress("bytes", len(line.encode("utf-8", "surrogatepass")))
        yield number, line


class RecordingLines(Lines):
    """Lines that are read from another `Lines`, and recorded until the next `clear`."""

    def __init__(self, lines: Lines) -> None:
        super().__init__((), lines.name)
        self._source = lines
        self.is_array = lines.is_array
        self._recorded: list[str] = []

    def split_array(self) -> None:
        self._source.split_array()
        self.is_array = self._source.is_array

    def numbered_head(self, count: int) -> list[tuple[int, str]]:
        return self._source.numbered_head(count)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for number, line in self._source:
            self._recorded.append(line)
            yield number, line

    def clear(self) -> None:
        """Drop the recorded lines."""
        self._recorded.clear()

    def recorded_text(self) -> str:
        """Return the concatenated lines that were read since the last `clear`."""
        return "".join(self._recorded)


MAX_LINES = 1 << 18
"""The maximum number of lines in a paragraph, so that a file without blank lines cannot fill the memory."""


class Paragraph(NamedTuple):
    """Consecutive lines; `first` is the number of the first line."""

    first: int
    lines: list[str]


def missing_end(text: str) -> str:
    """Return the line end to append to a text before another text can follow; "" if none is missing."""
    return "\n" if text and not text.endswith("\n") else ""


def strip_line_end(line: str) -> str:
    """Return a line without `\\n`, `\\r\\n` or `\\r` at its end."""
    return line.removesuffix("\n").removesuffix("\r")


def is_blank(line: str) -> bool:
    """Return whether a line has no other characters than blanks, tabs and line ends."""
    return not line.strip(" \t\r\n")


def json_values(lines: Lines) -> Iterator[tuple[int, Any]]:
    """Yield the number and the JSON value of each line that is not blank. Raises DataError (file:line) if invalid."""
    for number, line in lines:
        if not is_blank(line):
            try:
                value = parse_json(line)
            except ParseError as error:
                raise DataError(str(error), lines.name, number) from None
            yield number, value


def paragraphs(lines: Lines, is_comment: Callable[[str], bool]) -> Iterator[Paragraph]:
    """Split the text of a format with one row for each word into sentences.

    The rows of a sentence end at a blank line or a comment. A paragraph begins with all lines since the previous
    paragraph and ends with its blank line; the last paragraph has all remaining lines. So the concatenated paragraphs
    are the text, except that a text without rows has no paragraph.
    """
    complete: Paragraph | None = None
    current, has_rows = Paragraph(1, []), False
    for number, line in lines:
        is_blank_line = is_blank(line)
        if len(current.lines) > MAX_LINES:
            raise DataError(f"more than {MAX_LINES:,} lines without a blank line between sentences", lines.name, number)
        if not is_blank_line and not is_comment(line):
            has_rows = True
        elif has_rows:
            current.lines.extend([line] if is_blank_line else [])
            if complete:
                yield complete
            complete, has_rows = current, False
            current = Paragraph(number + 1, []) if is_blank_line else Paragraph(number, [line])
            continue
        current.lines.append(line)
    if complete:
        complete.lines.extend([] if has_rows else current.lines)
        yield complete
    if has_rows:
        yield current


def check_width(width: int, name: str, line: int) -> int:
    """Return `width`, the number of columns of a row. Raises DataError above `MAX_COLUMNS`."""
    if width > MAX_COLUMNS:
        raise DataError(f"{width:,} columns; expected at most {MAX_COLUMNS:,}", name, line)
    return width


DOCUMENT_START = "-DOCSTART-"
COMMENT = "#"
FIELD = re.compile(r"[^ \t]+")
_MIN_COMMENT_FRACTION = 0.75
"""The minimum fraction of sentences that begin with `#` in a file with comments; otherwise `#` may be a word."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns of each row.

    A line that begins with `#` is a comment if its number of columns differs from `width`, if its second field is in
    `comment_keys`, such as `id` in `# id 5`, or for columns separated by blanks if it is `# key = value`.
    """

    line: int
    """The number of the line that determined the columns."""
    width: int
    has_tabs: bool
    comment_keys: frozenset[str] = frozenset()

    @classmethod
    def of(cls, lines: Sequence[tuple[int, str]]) -> "RowLayout | None":
        """Detect the layout from the first numbered lines of a file; None if there are no rows, or only comments."""
        rows = [(n, row) for n, row in lines if not (row.startswith(COMMENT) or is_blank(row) or opens_document(row))]
        if not rows:
            return None
        number, first_row = rows[0]
        has_tabs = "\t" in first_row
        pairs = pairwise(["", *(line for _, line in lines)])
        first_lines = [line for before, line in pairs if is_blank(before) and not is_blank(line)]
        comments = [line.split() for line in first_lines if line.startswith(COMMENT)]
        labels = {fields[-1] for _, line in rows if (fields := line.split())}
        has_keys = not has_tabs and len(comments) >= max(2, _MIN_COMMENT_FRACTION * len(first_lines))
        keys = frozenset(fields[1] for fields in comments if len(fields) > 1 and has_keys) - labels
        return cls(number, len(fields_of(first_row, has_tabs=has_tabs)), has_tabs, keys)

    def fields(self, line: str) -> list[str]:
        """Split a row into its columns."""
        return fields_of(line, has_tabs=self.has_tabs)

    def is_comment(self, line: str) -> bool:
        """Return whether a line is a comment."""
        if not line.startswith(COMMENT):
            return False
        first, *fields = line.split(None, 3)
        has_key = bool(self.comment_keys & {*fields[:1]}) or (first == COMMENT and fields[1:2] == ["="])
        return len(self.fields(line)) != self.width or (has_key and not self.has_tabs)

    def is_row(self, line: str) -> bool:
        """Return whether a line is a row with a word."""
        return not (is_blank(line) or opens_document(line) or self.is_comment(line))


def fields_of(line: str, *, has_tabs: bool) -> list[str]:
    """Split a line at tabs, or at runs of blanks."""
    return strip_line_end(line).split("\t") if has_tabs else FIELD.findall(strip_line_end(line))


def opens_document(line: str) -> bool:
    """Return whether a line begins a document, as in CoNLL-2003."""
    return line.startswith(DOCUMENT_START) and line[len(DOCUMENT_START) :][:1] in {"", " ", "\t", "\r", "\n"}
