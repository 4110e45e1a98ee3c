"""Parsers of JSON and TOML with limits, which return a value or raise `ParseError`, and the search for files.

Python's parsers raise RecursionError for deeply nested documents, and ValueError for numbers of more than 4,300 digits.
The parsers accept hundreds of levels, on which later code fails. The caller adds the file's name to messages.
"""

import errno
import fnmatch
import glob
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ensue.errors import RecipeError, quote

MAX_DEPTH = 64
"""The maximum number of nested tables and lists; documents usually have fewer than ten."""
MAX_TOML_CHARACTERS = 1 << 20
"""The parser takes minutes for longer documents."""
MAX_FILE_BYTES = 1 << 28
"""The maximum size of a file that is read as a whole. A vocabulary of a million words has about 20 MB."""
MAX_LINE_BYTES = 1 << 24
"""The maximum size of a line of a log. A validation with scores of 100,000 labels has about 8 MB."""
_KEY_NAME = r"""[ \t]*(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\."""
_LONG_KEY = re.compile(rf"(?:^[ \t[]*|[{{,])(?:{_KEY_NAME}){{{MAX_DEPTH}}}", re.MULTILINE)
"""Matches a dotted TOML key of more than `MAX_DEPTH` names; the parser takes quadratic time in the number of names."""
_NESTING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[][{}]', re.DOTALL)
"""Matches a JSON string, or a bracket outside strings."""
ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL}
"""Error numbers for a path that does not exist (EINVAL: a glob on Windows)."""


class ParseError(ValueError):
    """Text that is not JSON or TOML, or that exceeds a limit. The message is one line."""


def parse_json(text: str | bytes, decoder: json.JSONDecoder | None = None) -> Any:
    """Parse JSON; bytes are UTF-8. The decoder may be `UNIQUE_KEYS` or `YIELDING`.

    Raises ParseError for invalid JSON and for more than `MAX_DEPTH` levels.
    """
    text = _decode(text)
    value = _parse(json.loads if decoder is None else decoder.decode, text, "JSON")
    if text.count("[") + text.count("{") > MAX_DEPTH:  # fewer brackets cannot be nested so deeply
        _check_depth(value, "JSON")
    return value


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """Parse TOML; bytes are UTF-8. Raises ParseError like `parse_json`, and above MAX_TOML_CHARACTERS."""
    text = _decode(text)
    if len(text) > MAX_TOML_CHARACTERS:
        raise ParseError(f"not TOML that can be read: more than {MAX_TOML_CHARACTERS:,} characters")
    if _LONG_KEY.search(text):
        raise _depth_error("TOML")
    value: dict[str, Any] = _parse(tomllib.loads, text, "TOML")
    _check_depth(value, "TOML")
    return value


def parse_setting(setting: str) -> tuple[str, Any]:
    """Return the key and the value of "key=value". A value that is not in TOML is a string."""
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise RecipeError(f'--set takes key=value, for example train.steps=500; found "{setting}"')
    try:
        return key.strip(), parse_toml(f"value = {value}")["value"]
    except ParseError:
        return key.strip(), value


def check_access(path: Path) -> Path:
    """Return the path. Raises OSError if access is denied, which `Path.exists` ignores since Python 3.14."""
    try:
        path.stat()
    except OSError as error:
        if error.errno not in ABSENT:
            raise
    except ValueError:  # a NUL character: no file can have this name
        pass
    return path


def files_in(folder: Path) -> Iterator[Path]:
    """Yield the regular files in a folder and its subfolders, without hidden files and without links to folders."""
    for parent, names in _walk(folder):
        yield from (path for name in names if (path := parent / name).is_file())


def matching_files(pattern: Path) -> Iterator[Path]:
    """Yield the regular files that match a glob, maybe twice. `**` excludes hidden files and links to folders."""
    yield from _expand(Path(pattern.anchor), pattern.parts[bool(pattern.anchor) :])


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    for parent, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield Path(parent), [name for name in names if not name.startswith(".")]


def _raise(error: OSError) -> None:
    raise error


def _expand(folder: Path, patterns: Sequence[str]) -> Iterator[Path]:
    check_access(folder)
    if not patterns:
        if folder.is_file():
            yield folder
    elif not glob.has_magic(patterns[0]):
        yield from _expand(folder / patterns[0], patterns[1:])
    elif not folder.is_dir():
        return
    elif patterns[0] != "**":
        names = [name for name in os.listdir(folder) if name.startswith(".") == patterns[0].startswith(".")]
        for name in fnmatch.filter(names, patterns[0]):
            yield from _expand(folder / name, patterns[1:])
    elif len(patterns) == 1:
        yield from files_in(folder)
    else:
        for below, _ in _walk(folder):
            yield from _expand(below, patterns[1:])


def read_bounded(path: Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """Return the bytes of a file. Raises OSError, and ParseError above `limit` bytes, for a pipe, or for a device."""
    _check_is_plain(path)
    if path.stat().st_size <= limit:
        with path.open("rb") as file:
            content = file.read(limit + 1)
        if len(content) <= limit:
            return content
    raise ParseError(f"too large for a file of this kind: more than {limit:,} bytes")


def read_lines(path: Path, limit: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """Yield the complete lines of a file without their ends. Raises like `read_bounded`; `limit` bounds each line."""
    _check_is_plain(path)
    with path.open("rb") as file:
        while (line := file.readline(limit)).endswith(b"\n"):
            yield line[:-1]
        if len(line) == limit:
            raise ParseError(f"a line of {limit:,} bytes or more")


def _check_is_plain(path: Path) -> None:
    if not (path.is_file() or path.is_dir()) and path.exists():
        raise ParseError("not a file")


def is_too_deep(error: json.JSONDecodeError, start: int = 0) -> bool:
    """Return whether the JSON text from `start` to the error has more than `MAX_DEPTH` levels.

    For a text that is too deep and invalid, some versions of Python report the depth, and others report the error.
    """
    depth = 0
    for match in _NESTING.finditer(error.doc, start, error.pos):
        depth += (match[0] in "[{") - (match[0] in "]}")
        if depth > MAX_DEPTH:
            return True
    return False


def _decode(text: str | bytes) -> str:
    try:
        return text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise ParseError(f"not UTF-8 (byte {error.start + 1:,} is 0x{error.object[error.start]:02x})") from None


def _parse(parse: Callable[[str], Any], text: str, kind: str) -> Any:
    try:
        return parse(text)
    except ParseError:
        raise
    except json.JSONDecodeError as error:
        if is_too_deep(error):
            raise _depth_error(kind) from None
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise ParseError(f"not {kind} ({error.msg} in {line}column {error.colno})") from None
    except tomllib.TOMLDecodeError as error:
        raise ParseError(f"not {kind}: {error}") from None
    except RecursionError:
        raise _depth_error(kind) from None
    except ValueError:  # Python's limit on digits
        raise ParseError(f"not {kind} that can be read: a number of more than 4,300 digits") from None


def reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of an object as a dict. Raises ParseError for a key that occurs twice."""
    unique: dict[str, Any] = {}
    for key, value in pairs:
        if key in unique:
            raise ParseError(f"ambiguous JSON: an object has the key {quote(key)} twice")
        unique[key] = value
    return unique


UNIQUE_KEYS = json.JSONDecoder(object_pairs_hook=reject_duplicate_keys)
"""A decoder that raises ParseError for an object with a duplicate key, since parsers differ in which value they use."""


class NumberText(str):
    """The text of a number, which may have more digits than Python can convert."""


class ExactFloat(float):
    """A number with its text, such as 1e5."""

    def __init__(self, text: str) -> None:
        self.text = text


EXACT = json.JSONDecoder(parse_float=NumberText, parse_int=NumberText, object_pairs_hook=reject_duplicate_keys)
"""A decoder that returns numbers as `NumberText`."""
EXACT_FLOATS = json.JSONDecoder(parse_float=ExactFloat)  # `to_json` restores the texts of floats
_MARK = os.urandom(16).hex()
"""A random mark of the texts of numbers in `to_json`, which no string of a file contains."""


def to_json(value: Any, **options: Any) -> str:
    """Return a value as JSON with the texts of `NumberText` and `ExactFloat`. `options` are those of `json.dumps`."""
    return re.sub(rf'"{_MARK}([^"]+)"', r"\1", json.dumps(_mark_numbers(value), **options))


def _mark_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _mark_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mark_numbers(item) for item in value]
    if isinstance(value, ExactFloat):
        return _MARK + value.text
    return _MARK + value if isinstance(value, NumberText) else value


YIELDING = json.JSONDecoder(parse_int=lambda digits: int(digits), parse_float=lambda digits: float(digits))  # noqa: PLW0108
"""A decoder that calls a Python function for each number, so that other threads can run between long numbers."""


def _check_depth(value: Any, kind: str) -> None:
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        containers = (value.values() if isinstance(value, dict) else value for value in level)
        level = [item for items in containers for item in items if isinstance(item, (dict, list))]  # not |: slower
        if not level:
            return
    raise _depth_error(kind)


def _depth_error(kind: str) -> ParseError:
    return ParseError(f"unsupported {kind}: nested more than {MAX_DEPTH} deep")


def toml_value(name: str) -> str:
    """Return a name as TOML, quoted if it would be read as another value."""
    is_bare = re.fullmatch(r"[A-Za-z_][\w.]*", name) and name not in ("true", "false", "inf", "nan")
    return name if is_bare else json.dumps(name, ensure_ascii=False)
