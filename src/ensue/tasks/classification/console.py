"""Predictions as lines: in the format of the texts, as JSON lines, or in colors on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ensue.data.documents import Document, DocumentSource
from ensue.data.streams import is_stream, is_typed, stream_lines
from ensue.inspection.colors import ansi, color_of
from ensue.notices import say_empty
from ensue.tasks.classification.classified import Classified
from ensue.tasks.contract.windows import WHOLE, Shard

if TYPE_CHECKING:
    from ensue.tasks.classification.pipeline import ClassificationPipeline


def class_lines(
    pipeline: ClassificationPipeline, path: str, *, format: str | None, encoding: str, as_json: bool, color: bool,
    shard: Shard = WHOLE,
) -> Iterator[str]:  # fmt: skip
    """The texts of a file ("-": stdin) with their labels and probabilities, in order."""
    source = _documents(pipeline, path, format, encoding)
    parts: Iterable[Iterable[Document]] = ([document] for document in source) if is_typed(path) else [source]
    num_empty = 0
    for document, labels, probabilities in chain.from_iterable(pipeline.classify(part, shard) for part in parts):
        shares = dict(zip(pipeline.labels.names, probabilities.tolist(), strict=True))
        num_empty += document.is_empty
        if as_json:
            found = Classified(document.texts, labels, shares)
            yield json.dumps(found.as_json(), ensure_ascii=False) + "\n"
        elif color and source.layout.format == "plain":
            yield _colored(labels, shares, document)
        else:
            yield source.write(document, labels, [shares[label] for label in labels] or [max(shares.values())])
    if not as_json and shard.is_last:
        yield source.rest
    say_empty(num_empty, source.location)


def _colored(labels: Sequence[str], shares: dict[str, float], document: Document) -> str:
    line = Text()
    for label in labels or ("-",):
        share = f" {shares[label]:.2f}" if labels else ""
        line.append(f"{label}{share}", style=f"black on {color_of(label)}").append("  ")
    line.append(document.texts[0])
    return ansi(Console(highlight=False), line) + "\n"


def _documents(pipeline: ClassificationPipeline, path: str, format: str | None, encoding: str) -> DocumentSource:
    if not is_stream(path):
        return pipeline.source(path, format=format or "", encoding=encoding, is_labeled=False)
    format = format or ("plain" if is_typed(path) else "")
    return pipeline.source(stream_lines(path, encoding), format=format, is_labeled=False)
