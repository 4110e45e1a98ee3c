"""The prediction of a tagger: a text with its labeled words and spans."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ensue.inspection.markup import ansi, color_of
from ensue.text.schemes import spans


class LabeledWord(NamedTuple):
    """A word with its label; `start` and `end` are its place in the text, in code points."""

    text: str
    label: str
    start: int
    end: int
    confidence: Any = None
    """The probability of the label; of several columns those of each by name. None unless `predict` was called with
    `confidence`.
    """
    columns: dict[str, str] | None = None
    """The value in each column, of a tagger of several; `label` is that of the first one."""

    def __repr__(self) -> str:
        return "/".join([self.text, *(self.columns or {"": self.label}).values()])

    def as_json(self) -> dict[str, Any]:
        """The word as JSON values."""
        place = {"start": self.start, "end": self.end}
        if self.columns is None:
            return {"text": self.text, "label": self.label, **place, "confidence": round(self.confidence or 0.0, 6)}
        shares = {name: round(share, 6) for name, share in (self.confidence or {}).items()}
        return {"text": self.text, **self.columns, **place, "confidence": shares}


class LabeledSpan(NamedTuple):
    """A span of words with its class, and its place in the text, in code points."""

    text: str
    label: str
    start: int
    end: int

    def __repr__(self) -> str:
        return f"{self.text!r} {self.label}"


@dataclass(frozen=True, repr=False)
class TaggedSentence:
    """A text and its labeled words; a notebook shows it in colors."""

    text: str
    words: tuple[LabeledWord, ...]
    has_spans: bool = False

    @property
    def labels(self) -> list[str]:
        """The labels of the words, in order."""
        return [word.label for word in self.words]

    @property
    def spans(self) -> list[LabeledSpan]:
        """The spans that the labels write; empty for plain labels."""
        found = spans(self.labels) if self.has_spans else []
        places = [(span.label, self.words[span.start].start, self.words[span.end - 1].end) for span in found]
        return [LabeledSpan(self.text[start:end], label, start, end) for label, start, end in places]

    def as_json(self) -> dict[str, Any]:
        """The sentence as JSON values."""
        words = [word.as_json() for word in self.words]
        spans = {"spans": [span._asdict() for span in self.spans]} if self.has_spans else {}
        return {"text": self.text, "words": words, **spans}

    def __iter__(self) -> Iterator[LabeledWord]:
        return iter(self.words)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        if not self.has_spans:
            return " ".join(map(repr, self.words))
        parts, place = [], 0
        for span in self.spans:
            parts += [self.text[place : span.start], f"[{span.text} {span.label}]"]
            place = span.end
        return "".join([*parts, self.text[place:]])

    def _repr_html_(self) -> str:
        pieces: Sequence[LabeledSpan | LabeledWord] = self.spans if self.has_spans else self.words
        parts, place = [], 0
        for piece in pieces:
            parts.append(html.escape(self.text[place : piece.start]))
            parts.append(
                f'<span style="background:{color_of(piece.label)};border-radius:4px;padding:1px 3px;margin:0 1px">'
                f'{html.escape(piece.text)} <sub style="opacity:.7">{html.escape(piece.label)}</sub></span>'
            )
            place = piece.end
        return f'<div style="line-height:2.1">{"".join(parts)}{html.escape(self.text[place:])}</div>'


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
