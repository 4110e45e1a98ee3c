"""JSON and TOML from text, with limits: any text gives a value or a `ParseError`.

Python's own parsers raise RecursionError for a document that is nested deeply, and ValueError for a number of more than
4,300 digits. They accept a document that is nested some hundred levels deep, on which later code fails. The caller adds
the file's name to the message.
"""

from __future__ import annotations

import errno
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_DEPTH = 64
"""The most levels of nested tables and lists; documents usually have fewer than ten."""
MAX_TOML = 1 << 20
"""The most characters of a TOML document; the parser takes minutes for longer ones."""
_PART = r"""[ \t]*(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\."""
_LONG_KEY = re.compile(rf"(?:^[ \t[]*|[{{,])(?:{_PART}){{{MAX_DEPTH}}}", re.MULTILINE)
"""Matches a TOML key of more than `MAX_DEPTH` parts; the parser takes time with the square of their number."""
_NESTING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[][{}]', re.DOTALL)
"""Matches a JSON string, or a bracket outside strings."""
ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL}
"""Numbers of the errors for a path that leads nowhere; the last one is that of a glob on Windows."""


class ParseError(ValueError):
    """Text that is not JSON or TOML, or exceeds a limit; the message is one line and begins with `not`."""


def parse_json(text: str | bytes, decoder: json.JSONDecoder | None = None) -> Any:
    """The value of a JSON text; bytes are UTF-8. Raises ParseError for other text and for more than `MAX_DEPTH` levels.

    A `decoder` may read numbers in another way, or be `UNIQUE_KEYS` or `YIELDING`.
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


def asked(path: Path) -> Path:
    """The path itself. Raises OSError if the system refuses to say what is there: `Path.exists` and the like hide that
    since Python 3.14.
    """
    try:
        path.stat()
    except OSError as error:
        if error.errno not in ABSENT:
            raise
    except ValueError:  # a NUL character: nothing can be there
        pass
    return path


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


def is_too_deep(error: json.JSONDecodeError, start: int = 0) -> bool:
    """Whether the JSON from `start` to the error is nested more than `MAX_DEPTH` deep.

    It depends on the version of Python whether its parser sees the error or the depth first.
    """
    depth = 0
    for match in _NESTING.finditer(error.doc, start, error.pos):
        depth += (match[0] in "[{") - (match[0] in "]}")
        if depth > MAX_DEPTH:
            return True
    return False


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
        if is_too_deep(error):
            raise _too_deep(kind) from None
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


def _whole(digits: str) -> int:
    return int(digits)


def _real(digits: str) -> float:
    return float(digits)


YIELDING = json.JSONDecoder(parse_int=_whole, parse_float=_real)
"""Lets other threads in at each number. Texts and lists take Python's parser nanoseconds, long numbers do not."""


def _check_depth(value: Any, kind: str) -> None:
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        parts = (part.values() if isinstance(part, dict) else part for part in level)
        level = [inner for part in parts for inner in part if isinstance(inner, (dict, list))]  # faster
        if not level:
            return
    raise _too_deep(kind)


def _too_deep(kind: str) -> ParseError:
    return ParseError(f"not {kind} that can be read: nested more than {MAX_DEPTH} deep")
