"""Traces and attention of an encoder as a section of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ensue.inspection.drawing import WordColumns, lines, matrix
from ensue.inspection.encoder import Attention, Trace
from ensue.inspection.markup import escaped
from ensue.inspection.page import Section, cut, paragraph

MOST_DRAWN = 30
"""The most words whose attention is drawn."""
ORDER = ("input", "reset", "forget", "update", "depth", "candidate", "output", "hidden")


class Seen(NamedTuple):
    """What was seen of one text; `columns` has the words that are drawn."""

    columns: WordColumns
    traces: Sequence[Trace]
    attention: Sequence[Attention] | None
    name: str = ""
    """Which text of a pair it is."""


def encoder_sections(texts: Sequence[Seen]) -> list[Section]:
    """A section for a text or both texts of a pair; none for an encoder without taps."""
    drawn = [_traces(text) + _attention(text) for text in texts]
    if not any(drawn):
        return []
    return [Section("Inside the encoder", _about(texts) + "".join(drawn))]


def _about(texts: Sequence[Seen]) -> str:
    about = []
    if any(text.traces for text in texts):
        about.append(
            "A line is the mean of a gate over all its units while the layer reads: near 1 open, near 0 shut. Of what "
            "may be negative, the candidate and the hidden state, it is the mean size."
        )
    if any(text.attention for text in texts):
        about.append("In a square the row of a word shows what the word looks at. A row sums to 1.")
    return paragraph(" ".join(about))


def _traces(text: Seen) -> str:
    drawn = []
    for layer, direction, means in text.traces:
        series = {name: means[name] for name in sorted(means, key=_place)}
        name = f"{text.name}layer {layer}, {direction}"
        drawn.append(f"<h3>{escaped(name)}</h3>{lines(series, text.columns, name=name)}")
    return "".join(drawn)


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _attention(text: Seen) -> str:
    if text.attention is None:
        return paragraph("The attention in a text of this length is not shown.", "note")
    words = text.columns.words[:MOST_DRAWN]
    size, drawn = len(words), []
    for layer, weights in text.attention:
        heads = []
        for head, of_head in enumerate(weights, start=1):
            name = f"{text.name}layer {layer}, head {head}"
            drawing = matrix(of_head[:size, :size], words, words, name=name, key=text.columns.key)
            heads.append(f"<div><h3>{name}</h3>{drawing}</div>")
        drawn.append(f'<div class="many">{"".join(heads)}</div>')
    if text.attention:
        drawn.insert(0, cut(text.attention[0].weights.shape[1], size, "words"))
    return "".join(drawn)
