"""Incremental parsing of a JSON array into its values."""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from ensue.data.decoding import MAX_CHARACTERS
from ensue.errors import DataError
from ensue.parsing import MAX_DEPTH, is_too_deep

_OPENING = re.compile(r"\[\s*+(?:\{\s*+(?:[\"}]|\Z)|\Z)")
_COMPLETE_OPENING = re.compile(r"\[\s*+\{\s*+[\"}]")
_MAX_OPENING_CHARACTERS = 1 << 12
"""The maximum number of characters in which the first key is searched for."""
_BEFORE_VALUE = re.compile(r"[ \t\r\n]*+[\[,][ \t\r\n]*+")
_WHITE_SPACE = re.compile(r"[ \t\r\n]*+")
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str)  # numbers may have more digits than Python can convert


def begins_array(chunks: Iterator[str]) -> tuple[bool, Iterator[str]]:
    """Return whether a text begins with an array of objects, and an iterator over all chunks of the text."""
    opening = next(chunks, "")
    while len(opening) < _MAX_OPENING_CHARACTERS and _OPENING.match(opening) and not _COMPLETE_OPENING.match(opening):
        chunk = next(chunks, "")
        if not chunk:
            break
        opening += chunk
    return bool(_COMPLETE_OPENING.match(opening)), chain([opening] if opening else [], chunks)


def array_chunks(chunks: Iterable[str], name: str) -> Iterator[tuple[int, str]]:
    """Split the text of an array after each value, and yield the line (from 1) and the text of each part.

    A part begins with the text before its value, such as a comma. The text after the last value is in parts without a
    value. The concatenated parts are the text. Memory is bounded by the largest value (`MAX_CHARACTERS`). Raises
    DataError (file:line) for invalid JSON.
    """
    text = _Text(chunks, name)
    expected = "["
    while True:
        index = text.skip_white_space(0)
        character = text.character(index)
        if character == "]" and expected == ",":
            break
        if character != expected:
            raise text.error(index, f"expected {'a comma or ]' if expected == ',' else '['}")
        index = text.skip_white_space(index + 1)
        if text.character(index) == "]" and expected == "[":
            break
        yield text.line_of(index), text.take(text.end_of_value(index))
        expected = ","
    yield text.line_of(index), text.take(index + 1)
    index = text.skip_white_space(0)
    if text.character(index):
        raise text.error(index, "expected the end of the file after the array")
    if index:
        yield text.line_of(0), text.take(index)


def split_part(part: str) -> tuple[str, str]:
    """Split a part of `array_chunks` into the text before its value, and the value ("" in a part without a value)."""
    match = _BEFORE_VALUE.match(part)
    return (part[: match.end()], part[match.end() :]) if match else (part, "")


class _Text:
    """A window of a text. Indices are relative to the start of the window."""

    def __init__(self, chunks: Iterable[str], name: str) -> None:
        self._chunks, self._name = iter(chunks), name
        self._buffer, self._start, self._line = "", 0, 1

    @property
    def num_buffered(self) -> int:
        return len(self._buffer) - self._start

    def skip_white_space(self, index: int) -> int:
        while True:
            match = _WHITE_SPACE.match(self._buffer, self._start + index)
            index = match.end() - self._start if match else index
            if index < self.num_buffered or not self._extend(max(1, index)):
                return index
            if index > MAX_CHARACTERS:
                raise self.error(0, f"more than {MAX_CHARACTERS:,} characters of white space", shown=False)

    def character(self, index: int) -> str:
        return self._buffer[self._start + index : self._start + index + 1]

    def end_of_value(self, index: int) -> int:
        """Return the end of the JSON value that begins at an index."""
        while True:
            try:
                _, end = _DECODER.raw_decode(self._buffer, self._start + index)
            except json.JSONDecodeError as error:
                begin, error_index = self._start + index, error.pos - self._start
                is_long = self.num_buffered - index > MAX_CHARACTERS
                if not is_long and self._extend(self.num_buffered - index):
                    continue
                if is_too_deep(error, begin):
                    raise self._too_deep(index) from None
                if is_long:
                    problem = f"a value of more than {MAX_CHARACTERS:,} characters, or not JSON ({error.msg})"
                    raise self.error(index, problem, shown=False) from None
                raise self.error(error_index, f"not JSON ({error.msg})", shown=False) from None
            except RecursionError:
                raise self._too_deep(index) from None
            else:
                if end < len(self._buffer) or self._buffer[end - 1] in '}]"' or not self._extend(1):
                    return end - self._start

    def take(self, index: int) -> str:
        """Return the text before an index, and move the start of the window to this index."""
        text = self._buffer[self._start : self._start + index]
        self._start += index
        self._line += text.count("\n")
        return text

    def line_of(self, index: int) -> int:
        return self._line + self._buffer.count("\n", self._start, self._start + index)

    def error(self, index: int, message: str, *, shown: bool = True) -> DataError:
        if shown:
            message += f", found {self.character(index)!r}" if self.character(index) else ", found the end"
        return DataError(message, self._name, self.line_of(index))

    def _too_deep(self, index: int) -> DataError:
        return self.error(index, f"unsupported JSON: nested more than {MAX_DEPTH} deep", shown=False)

    def _extend(self, count: int) -> bool:
        """Extend the window by at least `count` characters. Returns False at the end of the text."""
        chunks, size = [], 0
        for chunk in self._chunks:
            chunks.append(chunk)
            size += len(chunk)
            if size >= count:
                break
        self._buffer = "".join([self._buffer[self._start :], *chunks])
        self._start = 0
        return size > 0
