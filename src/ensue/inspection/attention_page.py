"""The attention of all heads of all layers as one section of a page: a picture of each, and the text it looks at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ensue.inspection.encoder import Attention
from ensue.inspection.page import Section, cut
from ensue.inspection.token_page import packed

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
    return [Section("Attention", "inspection/attention_page.html", shown)]


def _numbers(attention: Sequence[Attention]) -> dict[str, Any]:
    """The weights for the script."""
    heads = [of_head for layer in attention for of_head in layer.weights]
    size = shown_positions(attention)
    return {
        "size": size,
        "names": [f"layer {layer}, head {head + 1}" for layer, weights in attention for head in range(len(weights))],
        "values": packed(np.stack([of_head[:size, :size] for of_head in heads])),
    }
