"""What goes in and out line by line: stdin as text, and the surprisal of every token."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ensue.data.decoding import checked_encoding
from ensue.data.sources import TextSource
from ensue.errors import DataError

if TYPE_CHECKING:
    from ensue.pipeline import LanguagePipeline


def score_lines(pipeline: LanguagePipeline, path: str, encoding: str, *, as_json: bool) -> Iterator[str]:
    """A line for each token of a text ("-": stdin): its nats and the token as a JSON string, or one JSON object."""
    chunks = stdin_text(encoding) if path == "-" else TextSource(path, encoding=encoding).chunks()
    for symbol, nats in pipeline.score_stream(chunks):
        if as_json:
            yield json.dumps({"token": symbol, "nats": round(max(nats, 0.0), 6)}, ensure_ascii=False)
        else:
            yield f"{max(nats, 0.0):9.4f}\t{json.dumps(symbol, ensure_ascii=False)[1:-1]}"


def stdin_text(encoding: str) -> Iterator[str]:
    """What comes in, line by line; DataError where it is not in that encoding."""
    if sys.stdin is None:
        raise DataError("closed", "stdin")
    name = checked_encoding(encoding)
    decoder = codecs.getincrementaldecoder("utf-8-sig" if name == "utf-8" else name)()
    line = 1
    try:
        while block := sys.stdin.buffer.readline(1 << 16):
            text = decoder.decode(block)
            line += text.count("\n")
            yield text
        yield decoder.decode(b"", final=True)
    except UnicodeError:
        raise DataError(f"not {name.upper()}; --encoding names another one", "stdin", line) from None
