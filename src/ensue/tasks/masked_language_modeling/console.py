"""Texts with their masks filled, as lines."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ensue.data.lines import Lines
from ensue.data.sources import TextSource
from ensue.data.streams import is_stream, stream_lines, stream_name
from ensue.errors import DataError, EnsueError
from ensue.tasks.contract.pipeline import Predictor
from ensue.tasks.contract.windows import Shard


def filled_lines(pipeline: Predictor, location: str, encoding: str, *, as_json: bool, shard: Shard) -> Iterator[str]:
    """The lines of a file ("-": stdin) with their masks filled, or as JSON with the best tokens of each mask.

    Raises DataError, with file and line, for a line without a mask or with too many tokens.
    """

    def lines() -> Lines:
        if is_stream(location):
            return stream_lines(location, encoding)
        return Lines(TextSource(location, encoding=encoding).chunks(), location)

    for number, line in shard.items(lines):
        text = line.rstrip("\r\n")
        try:
            (found,) = pipeline.predict([text])
        except EnsueError as error:
            raise DataError(str(error), stream_name(location), number) from None
        said = json.dumps({"text": text, **found.as_json()}, ensure_ascii=False) if as_json else found.text
        yield said + "\n"
