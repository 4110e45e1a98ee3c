"""A text as its tokens, colored by what a model expected or by any of its units, as a section of a page."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Section, cut
from ensue.inspection.predictions import Predictions
from ensue.inspection.texts import STRONGEST
from ensue.inspection.units import Units

MOST_SHOWN = 5_000
"""The most tokens of a text on a page."""
MOST_BYTES = 1_500_000
"""The most values of units on a page, one byte each."""
LONGEST_SYMBOL = 40
BLANKS = str.maketrans({" ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥"})


def title_of(text: str) -> str:
    """The beginning of a text as the title of its page."""
    return clipped(" ".join(text.split()) or shown(text), TITLE)


def shown(symbol: str) -> str:
    """A token as it stands in a list: short, with signs for blanks."""
    return clipped(symbol.translate(BLANKS), LONGEST_SYMBOL)


def text_section(
    tokens: Sequence[str],
    ids: Sequence[int],
    predictions: Predictions,
    symbol: Callable[[int], str],
    *,
    length: int,
    vocabulary_size: int,
    about: str,
    units: Sequence[Units] = (),
    chosen: Sequence[Sequence[int]] = (),
) -> Section:
    """The text of `tokens` with these `ids`, in which any of the `chosen` units can be seen.

    `predictions` may have one position more, which is behind the text; `length` are the tokens of the whole text.
    """
    count = min(len(tokens), MOST_SHOWN)
    full = math.log(vocabulary_size)
    behind = ["▸"] if count == length < len(predictions.ranks) else []
    numbers = _numbers(ids, predictions, symbol, count, len(behind)) | {
        "full": full,
        "groups": [_packed(found, some, count) for found, some in zip(units, chosen, strict=True)],
    }
    shown = {
        "about": about,
        "note": cut(length, count, "tokens"),
        "kinds": [found.name for found in units],
        "tokens": list(zip([*tokens[:count], *behind], _strengths(predictions, full), strict=False)),
        "numbers": numbers,
    }
    return Section("The text", "inspection/token_page.html", shown)


def _strengths(predictions: Predictions, full: float) -> list[float | None]:
    """The percentages of color of tokens by their surprisals; None where no token stands."""
    shares = STRONGEST * np.minimum(1.0, predictions.surprisals / full)
    return [None if math.isnan(strength) else strength for strength in shares.tolist()]


def _numbers(
    ids: Sequence[int], predictions: Predictions, symbol: Callable[[int], str], count: int, behind: int
) -> dict[str, Any]:
    """The script's data of each token; `symbols` are the texts of all tokens that it names."""
    positions = count + behind
    best = predictions.ids[:positions]
    named = np.unique(np.concatenate((best.ravel(), np.asarray(ids[:count], np.int64))))
    order = {id: number for number, id in enumerate(named.tolist())}
    return {
        "tokens": count,
        "symbols": [shown(symbol(id)) for id in order],
        "token": [order[id] for id in list(ids)[:count]],
        "surprisal": [None if math.isnan(nats) else round(nats, 4) for nats in predictions.surprisals[:positions]],
        "rank": predictions.ranks[:positions].tolist(),
        "entropy": [round(nats, 4) for nats in predictions.entropies[:positions].tolist()],
        "options": [
            [[order[id], round(p, 5)] for id, p in zip(*row, strict=True)]
            for row in zip(best.tolist(), predictions.probabilities[:positions].tolist(), strict=True)
        ],
    }


def _packed(units: Units, chosen: Sequence[int], count: int) -> dict[str, Any]:
    """Units as bytes, one after another: 0 is a unit's `low`est value, 255 its `high`est."""
    values = units.values[:count, list(chosen)].astype(np.float64)
    low, high = values.min(0), values.max(0)
    steps = np.divide(values - low, high - low, out=np.zeros_like(values), where=high > low)
    return {
        "name": units.name,
        "units": list(chosen),
        "low": [float(f"{value:.5g}") for value in low],
        "high": [float(f"{value:.5g}") for value in high],
        "values": packed(steps.T),
    }


def packed(shares: NDArray[Any]) -> str:
    """Numbers from 0 to 1 as bytes in base64."""
    return b64encode(np.rint(255 * shares).astype(np.uint8).tobytes()).decode()
