"""Traces and attention of an encoder as sections of a page, and attention as bars over a text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ensue.inspection.drawing import WordColumns, lines, matrix
from ensue.inspection.encoder import Attention, Trace
from ensue.inspection.page import Section, cut
from ensue.inspection.token_page import packed
from ensue.runs.pictures import Grid, Lines

MOST_DRAWN = 30
"""The most words whose attention is drawn."""
ORDER = ("input", "reset", "forget", "update", "depth", "candidate", "output", "hidden")


class Seen(NamedTuple):
    """The encoder's values for one text; `columns` has the words that are drawn."""

    columns: WordColumns
    traces: Sequence[Trace]
    attention: Sequence[Attention] | None
    name: str = ""
    """Which text of a pair it is."""


def encoder_sections(texts: Sequence[Seen]) -> list[Section]:
    """A section for a text or both texts of a pair; none for an encoder without taps."""
    shown = [
        {"traces": _traces(text), "layers": _attention(text), "is_too_long": text.attention is None, "note": _cut(text)}
        for text in texts
    ]
    if not any(one["traces"] or one["layers"] or one["is_too_long"] for one in shown):
        return []
    numbers = {"about": _about(texts), "texts": shown}
    return [Section("Inside the encoder", "inspection/encoder.html", numbers, _pictures(texts))]


def _pictures(texts: Sequence[Seen]) -> dict[str, dict[str, Grid | Lines]]:
    """Pictures for matplotlib: gates by layers, attention by layers and heads."""
    found: dict[str, dict[str, Grid | Lines]] = {"gates": {}, "attention": {}}
    for text in texts:
        words = text.columns.words
        for name, means in _series(text):
            values = {kind: values[: len(words)] for kind, values in means.items()}
            found["gates"][name] = Lines(words, values, "mean of the units")
        found["attention"] |= grids(text.attention or (), words, text.name)
    return {kind: some for kind, some in found.items() if some}


def grids(attention: Sequence[Attention], words: Sequence[str], name: str = "") -> dict[str, Grid | Lines]:
    """The weights of each head over the first words, for matplotlib."""
    shown = words[:MOST_DRAWN]
    return {
        f"{name}layer {layer}, head {head}": Grid(shown, shown, of_head[: len(shown), : len(shown)])
        for layer, weights in attention
        for head, of_head in enumerate(weights, start=1)
    }


def _about(texts: Sequence[Seen]) -> str:
    about = []
    if any(text.traces for text in texts):
        about.append(
            "A line is the mean of a gate over all its units while the layer reads: near 1 open, near 0 shut. Of what "
            "may be negative, the candidate and the hidden state, it is the mean size."
        )
    if any(text.attention for text in texts):
        unit = texts[0].columns.unit
        about.append(f"In a square the row of a {unit} shows what the {unit} looks at. A row sums to 1.")
    return " ".join(about)


def _series(text: Seen) -> Iterator[tuple[str, dict[str, NDArray[np.float64]]]]:
    """The name of each layer in each direction, and the means of its values in order."""
    for layer, direction, means in text.traces:
        yield f"{text.name}layer {layer}, {direction}", {name: means[name] for name in sorted(means, key=_place)}


def _traces(text: Seen) -> list[tuple[str, Markup]]:
    """The name and the drawing of each layer in each direction."""
    return [(name, lines(series, text.columns, name=name)) for name, series in _series(text)]


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _attention(text: Seen) -> list[list[tuple[str, Markup]]]:
    """For each layer the names and the drawings of its heads."""
    words = text.columns.words[:MOST_DRAWN]
    size = len(words)
    return [
        [
            (name := f"{text.name}layer {layer}, head {head}",
             matrix(of_head[:size, :size], words, words, name=name, key=text.columns.key))
            for head, of_head in enumerate(weights, start=1)
        ]
        for layer, weights in text.attention or ()
    ]  # fmt: skip


def _cut(text: Seen) -> str:
    size = min(len(text.columns), MOST_DRAWN)
    return cut(text.attention[0].weights.shape[1], size, f"{text.columns.unit}s") if text.attention else ""


MOST_WEIGHTS = 1_000_000
"""The most weights on a page, one byte each."""


def shown_positions(attention: Sequence[Attention]) -> int:
    """The positions whose attention is on a page."""
    heads = sum(len(layer.weights) for layer in attention)
    positions: int = attention[0].weights.shape[1]
    return min(positions, max(1, math.isqrt(MOST_WEIGHTS // heads)))


def attention_section(
    attention: Sequence[Attention], tokens: Sequence[str], *, length: int, about: str
) -> list[Section]:
    """All heads, and the `tokens` of their positions, of which the whole text has `length`; none without attention."""
    if not attention:
        return []
    size = shown_positions(attention)
    shown = {
        "about": f"{about} A row of a picture is a token, its columns are what it looks at; each row sums to 1. Choose "
        "a head and rest on a token: what it looks at is colored.",
        "note": cut(length, size, "positions"),
        "tokens": tokens[:size],
        "numbers": _numbers(attention),
    }
    pictures = {"attention": grids(attention, tokens[:size])}
    return [Section("Attention", "inspection/attention_page.html", shown, pictures)]


def _numbers(attention: Sequence[Attention]) -> dict[str, Any]:
    """The weights for the script."""
    heads = [of_head for layer in attention for of_head in layer.weights]
    size = shown_positions(attention)
    return {
        "size": size,
        "names": [f"layer {layer}, head {head + 1}" for layer, weights in attention for head in range(len(weights))],
        "values": packed(np.stack([of_head[:size, :size] for of_head in heads])),
    }
