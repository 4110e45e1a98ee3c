"""Labels as lines: in the format of the texts, as JSON lines, or in colors on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ensue.data.sentences.sentence import Sentence
from ensue.data.sentences.source import SentenceSource
from ensue.data.streams import is_stream, is_typed, stream_lines
from ensue.inspection.colors import ansi, color_of
from ensue.tasks.contract.windows import WHOLE, Shard

if TYPE_CHECKING:
    from ensue.tasks.labeling.pipeline import LabelingPipeline
    from ensue.tasks.labeling.tagged_sentence import TaggedSentence


def label_lines(
    pipeline: LabelingPipeline, path: str, *, format: str | None, encoding: str, as_json: bool, color: bool,
    shard: Shard = WHOLE,
) -> Iterator[str]:  # fmt: skip
    """The texts of a file ("-": stdin) with their labels, in order; `color` is for a terminal."""
    source = _sentences(pipeline, path, format, encoding)
    written = source.format
    parts: Iterable[Iterable[Sentence]] = ([sentence] for sentence in source) if is_typed(path) else [source]
    for answer in chain.from_iterable(pipeline.label(part, confidence=as_json, shard=shard) for part in parts):
        if as_json:
            yield json.dumps(pipeline.tagged(answer, written).as_json(), ensure_ascii=False) + "\n"
        elif color and written.name == "text":
            yield aligned(pipeline.tagged(answer, written)) + "\n"
        else:
            yield pipeline.written(answer, written)
    if not as_json and shard.is_last:
        yield source.rest


def aligned(tagged: TaggedSentence, width: int | None = None) -> str:
    """Words with their labels below them, in lines of the terminal's width."""
    console = Console(highlight=False)
    room = width or console.width
    lines: list[str] = []
    above, below, used = Text(), Text(), 0
    for word in tagged:
        size = max(cell_len(word.text), cell_len(word.label)) + 2
        if used and used + size > room:
            lines += [ansi(console, above), ansi(console, below)]
            above, below, used = Text(), Text(), 0
        above.append(word.text + " " * (size - cell_len(word.text)))
        style = "dim" if word.label == "O" else f"black on {color_of(word.label)}"
        below.append(word.label, style=style).append(" " * (size - cell_len(word.label)))
        used += size
    return "\n".join([*lines, ansi(console, above), ansi(console, below)]) + "\n"


def _sentences(pipeline: LabelingPipeline, path: str, format: str | None, encoding: str) -> SentenceSource:
    if not is_stream(path):
        return pipeline.source(path, format=format, encoding=encoding)
    return pipeline.source(stream_lines(path, encoding), format=format or ("text" if is_typed(path) else None))
