"""Texts with their masks filled, as lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ensue.data.lines import Lines
from ensue.data.sources import TextSource
from ensue.data.streams import is_stream, stream_lines
from ensue.errors import DataError, EnsueError

if TYPE_CHECKING:
    from ensue.tasks.masked_language_modeling.pipeline import FilledText, MaskedLanguagePipeline


def filled_lines(pipeline: MaskedLanguagePipeline, location: str, encoding: str, *, as_json: bool) -> Iterator[str]:
    """The lines of a file ("-": stdin) with their masks filled, or as JSON with the best tokens of each mask.

    Raises DataError, with file and line, for a line without a mask or with too many tokens.
    """
    if is_stream(location):
        lines = stream_lines(location, encoding)
    else:
        lines = Lines(TextSource(location, encoding=encoding).chunks(), location)
    for number, line in lines:
        text = line.rstrip("\r\n")
        try:
            (found,) = pipeline.predict([text])
        except EnsueError as error:
            raise DataError(str(error), lines.name, number) from None
        yield (_json_line(text, found) if as_json else found.text) + "\n"


def _json_line(text: str, found: FilledText) -> str:
    masks = [[{"token": fill.token, "probability": fill.probability} for fill in fills] for fills in found.masks]
    return json.dumps({"text": text, "prediction": found.text, "masks": masks}, ensure_ascii=False)
