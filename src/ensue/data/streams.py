"""Text that comes from stdin, a pipe or a device: it is read once, as it comes."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ensue.data.decoding import BLOCK_BYTES, MAX_CHARACTERS, checked_encoding, text_of
from ensue.data.files import expanded, readable
from ensue.data.lines import Lines
from ensue.errors import DataError


def is_stream(path: str) -> bool:
    """Whether a path can be read only once: "-", which is stdin, or a pipe or device such as `<(...)`."""
    with readable(path):
        found = expanded(path)
        return path == "-" or (found.exists() and not found.is_file() and not found.is_dir())


def stream_name(path: str) -> str:
    """The name of the stream in messages."""
    return "stdin" if path == "-" else path


def stream_text(path: str, encoding: str = "utf-8") -> Iterator[str]:
    """The text line by line. Raises DataError if it cannot be read, or is not in that encoding."""
    return text_of(_blocks(path), stream_name(path), checked_encoding(encoding))


def whole_text(path: str, encoding: str = "utf-8") -> str:
    """The whole text, in memory. Raises DataError for more than `MAX_CHARACTERS`."""
    parts, length = [], 0
    for part in stream_text(path, encoding):
        parts.append(part)
        length += len(part)
        if length > MAX_CHARACTERS:
            raise DataError(f"more than {MAX_CHARACTERS:,} characters", stream_name(path))
    return "".join(parts)


def stream_lines(path: str, encoding: str) -> Lines:
    """The text as numbered lines of bounded length."""
    return Lines(stream_text(path, encoding), stream_name(path))


def is_typed(path: str) -> bool:
    """Whether a person types the texts, and waits for an answer after each."""
    return path == "-" and sys.stdin is not None and sys.stdin.isatty()


def _blocks(path: str) -> Iterator[bytes]:
    with readable(stream_name(path)):
        if path != "-":
            with expanded(path).open("rb") as stream:
                yield from iter(lambda: stream.readline(BLOCK_BYTES), b"")
        elif sys.stdin is None:
            raise DataError("closed", "stdin")
        else:
            yield from iter(lambda: sys.stdin.buffer.readline(BLOCK_BYTES), b"")
    yield b""
