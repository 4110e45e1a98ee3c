"""A JSON array that is a whole file, cut into its values as it is read. Formats know the meaning of the values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from ensue.data.decoding import MAX_CHARACTERS
from ensue.errors import DataError
from ensue.parsing import MAX_DEPTH, is_too_deep

_OPENING = re.compile(r"\[\s*+(?:\{\s*+(?:[\"}]|\Z)|\Z)")
_COMPLETE_OPENING = re.compile(r"\[\s*+\{\s*+[\"}]")
_LONGEST_OPENING = 1 << 12
_BEFORE_VALUE = re.compile(r"[ \t\r\n]*+[\[,][ \t\r\n]*+")
_WHITE = re.compile(r"[ \t\r\n]*+")
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str)  # numbers may have more digits than Python reads


def begins_array(chunks: Iterator[str]) -> tuple[bool, Iterator[str]]:
    """Whether a text begins as an array of objects does, `[{"` or `[{}`, with white space between; and its chunks."""
    opening = next(chunks, "")
    while len(opening) < _LONGEST_OPENING and _OPENING.match(opening) and not _COMPLETE_OPENING.match(opening):
        chunk = next(chunks, "")
        if not chunk:
            break
        opening += chunk
    return bool(_COMPLETE_OPENING.match(opening)), chain([opening] if opening else [], chunks)


def array_parts(chunks: Iterable[str], name: str) -> Iterator[tuple[int, str]]:
    """Each value of an array together with what stands before it, and what stands behind the last one.

    The parts, joined, are the text. With each comes the number (from 1) of the line where its value begins. Memory is
    that of a value, which may have `MAX_CHARACTERS`. Raises DataError (file:line) where the text is no array.
    """
    text = _Text(chunks, name)
    mark = "["
    while True:
        place = text.next_sign(0)
        sign = text.sign(place)
        if sign == "]" and mark == ",":
            break
        if sign != mark:
            raise text.error(place, f"expected {'a comma' if mark == ',' else '['} or ]")
        place = text.next_sign(place + 1)
        if text.sign(place) == "]" and mark == "[":
            break
        end = text.end_of_value(place)
        yield text.line_of(place), text.take(end)
        mark = ","
    yield text.line_of(place), text.take(place + 1)
    place = text.next_sign(0)
    if text.sign(place):
        raise text.error(place, "expected nothing behind the end of the array")
    if place:
        yield text.line_of(0), text.take(place)


def parted(part: str) -> tuple[str, str]:
    """A part of `array_parts` in two: the text before its value, and the value ("" for the text after the last one)."""
    match = _BEFORE_VALUE.match(part)
    return (part[: match.end()], part[match.end() :]) if match else (part, "")


class _Text:
    """A text that is held only as far as it is needed. Places count from the first character that is not taken."""

    def __init__(self, chunks: Iterable[str], name: str) -> None:
        self._chunks, self._name = iter(chunks), name
        self._held, self._start, self._line = "", 0, 1

    @property
    def left(self) -> int:
        """How many characters are held."""
        return len(self._held) - self._start

    def next_sign(self, place: int) -> int:
        """The next place without white space, or the last place of all."""
        while True:
            match = _WHITE.match(self._held, self._start + place)
            place = match.end() - self._start if match else place
            if place < self.left or not self._more(max(1, place)):
                return place
            if place > MAX_CHARACTERS:
                raise self.error(0, f"more than {MAX_CHARACTERS:,} characters of white space", shown=False)

    def sign(self, place: int) -> str:
        """The character there; "" after the end."""
        return self._held[self._start + place : self._start + place + 1]

    def end_of_value(self, place: int) -> int:
        """The place behind the JSON value that begins there."""
        while True:
            try:
                _, end = _DECODER.raw_decode(self._held, self._start + place)
            except json.JSONDecodeError as error:
                begin, wrong = self._start + place, error.pos - self._start
                is_long = self.left - place > MAX_CHARACTERS
                if not is_long and self._more(self.left - place):
                    continue
                if is_too_deep(error, begin):
                    raise self._too_deep(place) from None
                if is_long:
                    what = f"a value of more than {MAX_CHARACTERS:,} characters, or not JSON ({error.msg})"
                    raise self.error(place, what, shown=False) from None
                raise self.error(wrong, f"not JSON ({error.msg})", shown=False) from None
            except RecursionError:
                raise self._too_deep(place) from None
            else:
                if end < len(self._held) or self._held[end - 1] in '}]"' or not self._more(1):
                    return end - self._start

    def take(self, place: int) -> str:
        """Takes the text up to this place; later places count from here."""
        taken = self._held[self._start : self._start + place]
        self._start += place
        self._line += taken.count("\n")
        return taken

    def line_of(self, place: int) -> int:
        return self._line + self._held.count("\n", self._start, self._start + place)

    def error(self, place: int, message: str, *, shown: bool = True) -> DataError:
        if shown:
            message += f", found {self.sign(place)!r}" if self.sign(place) else ", found the end"
        return DataError(message, self._name, self.line_of(place))

    def _too_deep(self, place: int) -> DataError:
        return self.error(place, f"not JSON that can be read: nested more than {MAX_DEPTH} deep", shown=False)

    def _more(self, count: int) -> bool:
        """Holds at least `count` more characters, if there are as many; returns False if there are none.

        A value is tried again only when twice as much of it is held, so that trying costs time in proportion to it.
        """
        chunks, size = [], 0
        for chunk in self._chunks:
            chunks.append(chunk)
            size += len(chunk)
            if size >= count:
                break
        self._held = "".join([self._held[self._start :], *chunks])
        self._start = 0
        return size > 0
