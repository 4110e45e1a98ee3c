"""JSON and TOML from text, with limits: any text gives a value or a `ParseError`.

Python's own parsers raise RecursionError for a document that is nested deeply, and ValueError for a number of more than
4,300 digits. They accept a document that is nested some hundred levels deep, on which later code fails. The caller adds
the file's name to the message.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from json import decoder as decoders
from json import scanner
from pathlib import Path
from typing import Any

MAX_DEPTH = 64
"""The most levels of nested tables and lists; documents usually have fewer than ten."""
MAX_TOML = 1 << 20
"""The most characters of a TOML document; the parser takes minutes for longer ones."""
_PART = r"""[ \t]*(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\."""
_LONG_KEY = re.compile(rf"(?:^[ \t[]*|[{{,])(?:{_PART}){{{MAX_DEPTH}}}", re.MULTILINE)
"""Matches a TOML key of more than `MAX_DEPTH` parts; the parser takes time with the square of their number."""


class ParseError(ValueError):
    """Text that is not JSON or TOML, or exceeds a limit; the message is one line and begins with `not`."""


def parse_json(text: str | bytes, decoder: json.JSONDecoder | None = None) -> Any:
    """The value of a JSON text; bytes are UTF-8. Raises ParseError for other text and for more than `MAX_DEPTH` levels.

    A `decoder` may read numbers in another way, or be `UNIQUE_KEYS`.
    """
    text = _text(text)
    value = _parsed(json.loads if decoder is None else decoder.decode, text, "JSON")
    if text.count("[") + text.count("{") > MAX_DEPTH:  # fewer cannot be nested so deeply
        _check_depth(value, "JSON")
    return value


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """The table of a TOML text; bytes are UTF-8. Raises ParseError like `parse_json`, and for too long a text."""
    text = _text(text)
    if len(text) > MAX_TOML:
        raise ParseError(f"not TOML that can be read: more than {MAX_TOML:,} characters")
    if _LONG_KEY.search(text):
        raise _too_deep("TOML")
    value: dict[str, Any] = _parsed(tomllib.loads, text, "TOML")
    _check_depth(value, "TOML")
    return value


def read_bounded(path: Path, limit: int) -> bytes:
    """The bytes of a file.

    Raises OSError if it cannot be read, and ParseError if it has more than `limit` bytes, or is a pipe or a device,
    which might never end.
    """
    if not (path.is_file() or path.is_dir()) and path.exists():
        raise ParseError("not a file")
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ParseError(f"not a file of this kind: more than {limit:,} bytes")
    return content


def shown(value: Any, most: int = 60) -> str:
    """A value for a message: short, and in one line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # more digits than Python prints
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(text: str | bytes) -> str:
    try:
        return text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise ParseError(f"not UTF-8 (byte {error.start + 1:,} is 0x{error.object[error.start]:02x})") from None


def _parsed(parse: Callable[[str], Any], text: str, kind: str) -> Any:
    try:
        return parse(text)
    except ParseError:
        raise
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise ParseError(f"not {kind} ({error.msg} in {line}column {error.colno})") from None
    except tomllib.TOMLDecodeError as error:
        raise ParseError(f"not {kind}: {error}") from None
    except RecursionError:
        raise _too_deep(kind) from None
    except ValueError:  # says how Python's limit is raised
        raise ParseError(f"not {kind} that can be read: a number of more than 4,300 digits") from None


def _with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ParseError(f"not JSON that can be relied on: it has the key {shown(key)} twice")
        found[key] = value
    return found


UNIQUE_KEYS = json.JSONDecoder(object_pairs_hook=_with_unique_keys)
"""Refuses an object that has a key twice, of which Python takes the last value and other readers the first."""


_PLAIN = r"""[^\s\[\]{}",][^\[\]{}",]{0,64}|"[^"\\]{0,64}"|\[[^\[\]{}"]{0,512}\]|\{\s{0,64}\}"""
_RUN = re.compile(rf"(?:\s*(?:{_PLAIN})\s*,){{1,512}}")
"""Items of a list that need no look inside: numbers, short texts, short lists of numbers."""
_HEX = "[0-9a-fA-F]"
_PAIR = rf"\\u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}"
_PIECE = re.compile(rf"""(?:[^"\\]+|{_PAIR}|\\u{_HEX}{{4}}|\\[^u]){{1,4096}}""")
"""A piece of a string that may be read by itself."""


class InterruptibleDecoder(json.JSONDecoder):
    """Reads one text a little at a time, so that other threads run meanwhile, which wait while Python's parser reads.

    Raises ParseError for a text with more than `most` values that have to be looked at one by one.
    """

    def __init__(self, most: int = 1 << 17) -> None:
        super().__init__()
        self._left = most
        self.parse_string, self.parse_array, self.parse_object = _string, self._array, self._object
        self.scan_once = scanner.py_make_scanner(self)  # type: ignore[attr-defined]

    def _value(self, text: str, end: int) -> tuple[Any, int]:
        self._left -= 1
        if self._left < 0:
            raise ParseError("not JSON that can be read here: too many values")
        found: tuple[Any, int] = self.scan_once(text, end)
        return found

    def _object(self, place: tuple[str, int], strict: bool, scan: object, *hooks: Any) -> Any:
        return decoders.JSONObject(place, strict, self._value, *hooks)  # type: ignore[attr-defined]

    def _array(self, place: tuple[str, int], scan: object) -> tuple[list[Any], int]:
        text, start = place
        end, values = _blanks(text, start), list[Any]()
        if text[end : end + 1] == "]":
            return values, end + 1
        while True:
            if run := _RUN.match(text, end):
                end = run.end()
                values += _at(json.loads, f"[{run.group()[:-1]}]", text, run.start() - 1)
                continue
            try:
                value, end = self._value(text, _blanks(text, end))
            except StopIteration as error:
                raise json.JSONDecodeError("Expecting value", text, error.value) from None
            values.append(value)
            end = _blanks(text, end)
            if text[end : end + 1] == "]":
                return values, end + 1
            if text[end : end + 1] != ",":
                raise json.JSONDecodeError("Expecting ',' delimiter", text, end)
            end += 1


def _string(text: str, end: int, strict: bool = True) -> tuple[str, int]:
    parts = []
    while piece := _PIECE.match(text, end):
        parts.append(_at(json.loads, f'"{piece.group()}"', text, end - 1))
        end = piece.end()
    rest, end = decoders.scanstring(text, end, strict)  # type: ignore[attr-defined]  # its end, or a mistake
    return "".join([*parts, rest]), end


def _at(parse: Callable[[str], Any], part: str, text: str, start: int) -> Any:
    """A part of a text, parsed; its mistakes are those of the text."""
    try:
        return parse(part)
    except json.JSONDecodeError as error:
        raise json.JSONDecodeError(error.msg, text, start + error.pos) from None


def _blanks(text: str, end: int) -> int:
    return decoders.WHITESPACE.match(text, end).end()  # type: ignore[attr-defined,no-any-return]


def _check_depth(value: Any, kind: str) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        parts = (part.values() if isinstance(part, dict) else part for part in level)
        level = [inner for part in parts for inner in part if isinstance(inner, dict | list)]
        if not level:
            return
    raise _too_deep(kind)


def _too_deep(kind: str) -> ParseError:
    return ParseError(f"not {kind} that can be read: nested more than {MAX_DEPTH} deep")
