"""Vectors of texts, as lines or as a file, and neighbors as lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ensue.data.lines import Lines
from ensue.data.sources import TextSource, is_stream, is_typed, stream_lines
from ensue.data.vector_files import Row
from ensue.tasks.contract.windows import WHOLE, Shard

TOGETHER = 1024
"""Texts that are embedded at once."""


def embedded(pipeline: Any, location: str, *, encoding: str, shard: Shard = WHOLE, **options: Any) -> Iterator[Row]:
    """The lines of a file, a folder or a stream ("-": stdin) as texts with their vectors, in order."""

    def windows() -> Iterator[list[str]]:
        if is_stream(location):
            lines = stream_lines(location, encoding)
        else:
            lines = Lines(TextSource(location, encoding=encoding).chunks(), location)
        texts = (line.rstrip("\r\n") for _, line in lines)
        while part := list(islice(texts, 1 if is_typed(location) else TOGETHER)):
            yield part

    for part in shard.items(windows):
        yield from zip(part, pipeline.embed(part, **options), strict=True)


def text_line(row: Row) -> str:
    """A text, a tab, and the numbers of its vector with blanks between them."""
    return f"{row[0]}\t{' '.join(f'{number:.6g}' for number in row[1])}"


def neighbor_lines(neighbors: list[Any], *, as_json: bool) -> Iterator[str]:
    """A line for each neighbor: the text, a tab and the cosine; or a JSON object."""
    for text, similarity in neighbors:
        found = {"text": text, "similarity": similarity}
        yield json.dumps(found, ensure_ascii=False) if as_json else f"{text}\t{similarity:.4f}"
