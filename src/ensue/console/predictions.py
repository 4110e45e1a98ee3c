"""Labels as they are written: into the same format as the texts, as JSON lines, or in colors on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ensue.console.streams import is_stream, stream_name, stream_text
from ensue.data.documents import Document, DocumentSource
from ensue.data.lines import Lines
from ensue.data.sentences.formats import SentenceSource
from ensue.data.sentences.sentence import Sentence
from ensue.pipeline.colors import color_of

if TYPE_CHECKING:
    from ensue.pipeline import ClassificationPipeline, LabelingPipeline
    from ensue.pipeline.labeling import TaggedSentence


def label_lines(
    pipeline: LabelingPipeline, path: str, *, format: str | None, encoding: str, as_json: bool, color: bool
) -> Iterator[str]:
    """The texts of a file ("-": stdin) with their labels, in order; `color`: as a person reads them."""
    source = _sentences(pipeline, path, format, encoding)
    written = source.format
    parts: Iterable[Iterable[Sentence]] = ([sentence] for sentence in source) if _is_typed(path) else [source]
    for answer in chain.from_iterable(pipeline.label(part, confidence=as_json) for part in parts):
        if as_json:
            tagged = pipeline.tagged(answer, written)
            words = [word._asdict() | {"confidence": round(word.confidence or 0.0, 6)} for word in tagged]
            content = {"text": tagged.text, "words": words}
            if tagged.has_spans:
                content["spans"] = [span._asdict() for span in tagged.spans]
            yield json.dumps(content, ensure_ascii=False) + "\n"
        elif color and written.name == "text":
            yield aligned(pipeline.tagged(answer, written)) + "\n"
        else:
            yield pipeline.written(answer, written)
    if not as_json:
        yield source.rest


def class_lines(
    pipeline: ClassificationPipeline, path: str, *, format: str | None, encoding: str, as_json: bool, color: bool
) -> Iterator[str]:
    """The texts of a file ("-": stdin) with their labels and probabilities, in order."""
    source = _documents(pipeline, path, format, encoding)
    parts: Iterable[Iterable[Document]] = ([document] for document in source) if _is_typed(path) else [source]
    for document, labels, probabilities in chain.from_iterable(map(pipeline.classify, parts)):
        shares = dict(zip(pipeline.labels.names, probabilities.tolist(), strict=True))
        if as_json:
            rounded = {name: round(share, 6) for name, share in shares.items()}
            content = {"texts": document.texts, "labels": labels, "probabilities": rounded}
            yield json.dumps(content, ensure_ascii=False) + "\n"
        elif color and source.layout.format == "plain":
            yield _colored(labels, shares, document)
        else:
            yield source.write(document, labels, [shares[label] for label in labels] or [max(shares.values())])
    if not as_json:
        yield source.rest


def aligned(tagged: TaggedSentence, width: int | None = None) -> str:
    """Words with their labels below them, in as many lines as the terminal needs."""
    console = Console(highlight=False)
    room = width or console.width
    lines: list[str] = []
    above, below, used = Text(), Text(), 0
    for word in tagged:
        size = max(cell_len(word.text), cell_len(word.label)) + 2
        if used and used + size > room:
            lines += [_ansi(console, above), _ansi(console, below)]
            above, below, used = Text(), Text(), 0
        above.append(word.text + " " * (size - cell_len(word.text)))
        style = "dim" if word.label == "O" else f"black on {color_of(word.label)}"
        below.append(word.label, style=style).append(" " * (size - cell_len(word.label)))
        used += size
    return "\n".join([*lines, _ansi(console, above), _ansi(console, below)]) + "\n"


def _ansi(console: Console, text: Text) -> str:
    with console.capture() as captured:
        console.print(text, end="", soft_wrap=True)
    return captured.get().rstrip()


def _colored(labels: Sequence[str], shares: dict[str, float], document: Document) -> str:
    line = Text()
    for label in labels or ("-",):
        share = f" {shares[label]:.2f}" if labels else ""
        line.append(f"{label}{share}", style=f"black on {color_of(label)}").append("  ")
    line.append(document.texts[0])
    return _ansi(Console(highlight=False), line) + "\n"


def _is_typed(path: str) -> bool:
    """Whether a person types the texts, and waits for an answer after each."""
    return path == "-" and sys.stdin is not None and sys.stdin.isatty()


def _sentences(pipeline: LabelingPipeline, path: str, format: str | None, encoding: str) -> SentenceSource:
    if not is_stream(path):
        return pipeline.source(path, format=format, encoding=encoding)
    return pipeline.source(_lines(path, encoding), format=format or ("text" if _is_typed(path) else None))


def _documents(pipeline: ClassificationPipeline, path: str, format: str | None, encoding: str) -> DocumentSource:
    if not is_stream(path):
        return pipeline.source(path, format=format or "", encoding=encoding, is_labeled=False)
    format = format or ("plain" if _is_typed(path) else "")
    return pipeline.source(_lines(path, encoding), format=format, is_labeled=False)


def _lines(path: str, encoding: str) -> Lines:
    return Lines(stream_text(path, encoding), stream_name(path))
