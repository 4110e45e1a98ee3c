"""The surprisal of every token as lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ensue.data.sources import TextSource
from ensue.data.streams import is_stream, stream_text

if TYPE_CHECKING:
    from ensue.tasks.language_modeling.pipeline import LanguagePipeline


def score_lines(pipeline: LanguagePipeline, path: str, encoding: str, *, as_json: bool) -> Iterator[str]:
    """A line for each token of a text ("-": stdin): its nats and the token as a JSON string, or one JSON object."""
    chunks = stream_text(path, encoding) if is_stream(path) else TextSource(path, encoding=encoding).chunks()
    for symbol, nats in pipeline.score_stream(chunks):
        if as_json:
            yield json.dumps({"token": symbol, "nats": round(max(nats, 0.0), 6)}, ensure_ascii=False)
        else:
            yield f"{max(nats, 0.0):9.4f}\t{json.dumps(symbol, ensure_ascii=False)[1:-1]}"
