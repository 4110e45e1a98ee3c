"""Sections of a page with the gates, states and attention weights of an encoder."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ensue.inspection.drawing import WordColumns, draw_matrix, plot
from ensue.inspection.encoder import LayerAttention, LayerTrace
from ensue.inspection.page import Section, note_cut
from ensue.inspection.token_page import pack_shares
from ensue.runs.pictures import HeatMap, LinePlot

MAX_DRAWN_WORDS = 30
"""The maximum number of words in a drawing of attention."""
ORDER = ("input", "reset", "forget", "update", "depth", "candidate", "output", "hidden")


class EncoderView(NamedTuple):
    """The activations of an encoder for one text. `columns` has the displayed words."""

    columns: WordColumns
    traces: Sequence[LayerTrace]
    attention: Sequence[LayerAttention] | None
    name: str = ""
    """The name of the text in a pair."""


def encoder_sections(texts: Sequence[EncoderView]) -> list[Section]:
    """Return a section for a text or a pair of texts; an empty list for an encoder without taps."""
    contents = [
        {
            "traces": [(name, plot(series, text.columns, name=name)) for name, series in _series(text)],
            "layers": _draw_heads(text), "is_too_long": text.attention is None,
            "note": "" if not text.attention else note_cut(
                text.attention[0].weights.shape[1], min(len(text.columns), MAX_DRAWN_WORDS), f"{text.columns.unit}s"
            ),
        }
        for text in texts
    ]  # fmt: skip
    if not any(content["traces"] or content["layers"] or content["is_too_long"] for content in contents):
        return []
    values = {"about": _describe_views(texts), "texts": contents}
    return [Section("Inside the encoder", "inspection/encoder.html", values, _pictures(texts))]


def _pictures(texts: Sequence[EncoderView]) -> dict[str, dict[str, HeatMap | LinePlot]]:
    """Return pictures for matplotlib: gates by layer, and attention by layer and head."""
    pictures: dict[str, dict[str, HeatMap | LinePlot]] = {"gates": {}, "attention": {}}
    for text in texts:
        words = text.columns.words
        for name, means in _series(text):
            values = {kind: values[: len(words)] for kind, values in means.items()}
            pictures["gates"][name] = LinePlot(words, values, "mean of the units")
        pictures["attention"] |= build_heat_maps(text.attention or (), words, text.name)
    return {kind: by_name for kind, by_name in pictures.items() if by_name}


def build_heat_maps(
    attention: Sequence[LayerAttention], words: Sequence[str], name: str = ""
) -> dict[str, HeatMap | LinePlot]:
    """Return the weights of each head over the first words, for matplotlib."""
    words = words[:MAX_DRAWN_WORDS]
    size = len(words)
    return {title: HeatMap(words, words, weights[:size, :size]) for title, weights in _heads(attention, name)}


def _heads(attention: Sequence[LayerAttention], name: str = "") -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield the title and the weights (T, T) of each head."""
    for layer, weights in attention:
        yield from ((f"{name}layer {layer}, head {head}", matrix) for head, matrix in enumerate(weights, start=1))


def _describe_views(texts: Sequence[EncoderView]) -> str:
    sentences = []
    if any(text.traces for text in texts):
        sentences.append(
            "A line is the mean of a gate over its units at each position: near 1 open, near 0 shut. For the candidate "
            "and the hidden state, which may be negative, it is the mean of the absolute values."
        )
    if any(text.attention for text in texts):
        unit = texts[0].columns.unit
        sentences.append(f"In a square, the row of a {unit} has the attention weights of the {unit}. A row sums to 1.")
    return " ".join(sentences)


def _series(text: EncoderView) -> Iterator[tuple[str, dict[str, NDArray[np.float64]]]]:
    """Yield the name of each layer and direction with the means of its taps in order."""
    for layer, direction, means in text.traces:
        ordered = [*(name for name in ORDER if name in means), *(name for name in means if name not in ORDER)]
        yield f"{text.name}layer {layer}, {direction}", {name: means[name] for name in ordered}


def _draw_heads(text: EncoderView) -> list[list[tuple[str, Markup]]]:
    """Return the names and drawings of heads for each layer."""
    words = text.columns.words[:MAX_DRAWN_WORDS]

    def draw(title: str, weights: NDArray[np.float32]) -> Markup:
        return draw_matrix(weights[: len(words), : len(words)], words, words, name=title, key=text.columns.key)

    return [[(title, draw(title, w)) for title, w in _heads([layer], text.name)] for layer in text.attention or ()]


MAX_WEIGHTS = 1_000_000
"""The maximum number of attention weights on a page, with one byte per weight."""


def shown_positions(attention: Sequence[LayerAttention]) -> int:
    """Return the number of positions with attention weights on a page, bounded by MAX_WEIGHTS."""
    heads = sum(len(layer.weights) for layer in attention)
    positions: int = attention[0].weights.shape[1]
    return min(positions, max(1, math.isqrt(MAX_WEIGHTS // heads)))


def attention_section(
    attention: Sequence[LayerAttention], tokens: Sequence[str], *, length: int, about: str
) -> list[Section]:
    """Return the section of all heads over `tokens`, the first of `length` positions; an empty list without heads."""
    if not attention:
        return []
    size, (names, heads) = shown_positions(attention), zip(*_heads(attention), strict=True)
    weights = {"size": size, "names": names, "values": pack_shares(np.stack([head[:size, :size] for head in heads]))}
    values = {
        "about": f"{about} A row of a picture has the attention weights of a token; each row sums to 1. Choose a head "
        "and point at a token: the tokens that it attends to are colored.",
        "note": note_cut(length, size, "positions"), "tokens": tokens[:size], "numbers": weights,
    }  # fmt: skip
    pictures = {"attention": build_heat_maps(attention, tokens[:size])}
    return [Section("Attention", "inspection/attention_page.html", values, pictures)]
