"""What goes in and out line by line: a stream as text, and the surprisal of every token."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ensue.data.decoding import BLOCK_BYTES, MAX_CHARACTERS, checked_encoding, text_of
from ensue.data.files import expanded, readable
from ensue.data.sources import TextSource
from ensue.errors import DataError

if TYPE_CHECKING:
    from ensue.pipeline import LanguagePipeline


def score_lines(pipeline: LanguagePipeline, path: str, encoding: str, *, as_json: bool) -> Iterator[str]:
    """A line for each token of a text ("-": stdin): its nats and the token as a JSON string, or one JSON object."""
    chunks = stream_text(path, encoding) if is_stream(path) else TextSource(path, encoding=encoding).chunks()
    for symbol, nats in pipeline.score_stream(chunks):
        if as_json:
            yield json.dumps({"token": symbol, "nats": round(max(nats, 0.0), 6)}, ensure_ascii=False)
        else:
            yield f"{max(nats, 0.0):9.4f}\t{json.dumps(symbol, ensure_ascii=False)[1:-1]}"


def is_stream(path: str) -> bool:
    """Whether it is to be read once, as it comes: "-", which is stdin, or a pipe or device, as `<(...)` is one."""
    with readable(path):
        found = expanded(path)
        return path == "-" or (found.exists() and not found.is_file() and not found.is_dir())


def stream_name(path: str) -> str:
    """What messages call it."""
    return "stdin" if path == "-" else path


def stream_text(path: str, encoding: str = "utf-8") -> Iterator[str]:
    """What comes in, line by line; DataError where it cannot be read, or is not in that encoding."""
    return text_of(_blocks(path), stream_name(path), checked_encoding(encoding))


def whole_text(path: str) -> str:
    """All that comes in, which is held in memory; DataError beyond `MAX_CHARACTERS`."""
    parts, length = [], 0
    for part in stream_text(path):
        parts.append(part)
        length += len(part)
        if length > MAX_CHARACTERS:
            raise DataError(f"more than {MAX_CHARACTERS:,} characters", stream_name(path))
    return "".join(parts)


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
