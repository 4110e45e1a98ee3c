"""A text as its tokens, colored by what a model expected or by any of its units, as a section; predictions at each."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Section, cut
from ensue.inspection.texts import STRONGEST
from ensue.inspection.units import Units
from ensue.types import exact

NO_TOKEN = -1
"""The target of a position where no token stands: the end of a text, or a mask."""
MOST_OPTIONS = 5
"""The most tokens that are kept of a position."""


class Predictions(NamedTuple):
    """The `surprisals` (T,) of the tokens that stand at T positions, in nats, and their `ranks` (T,) from 1 on; the
    `entropies` (T,) in nats; the most probable `ids` (T, K) and their `probabilities` (T, K), the largest first.

    Where no token stands, the surprisal is NaN and the rank 0.
    """

    surprisals: NDArray[np.float64]
    ranks: NDArray[np.int64]
    entropies: NDArray[np.float64]
    ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    @classmethod
    def of(cls, logits: Tensor, targets: NDArray[np.int64]) -> Self:
        """The predictions of logits (T, V) for targets (T,), which may be `NO_TOKEN`."""
        log_p = exact(logits).log_softmax(-1)
        stands = torch.from_numpy(targets != NO_TOKEN).to(log_p.device)
        chosen = log_p.gather(1, torch.from_numpy(np.maximum(targets, 0)).to(log_p.device)[:, None])
        best = log_p.topk(min(MOST_OPTIONS, log_p.shape[1]), dim=1)
        found = (
            torch.where(stands, -chosen[:, 0], torch.nan),
            torch.where(stands, 1 + (log_p > chosen).sum(1), 0),
            torch.special.entr(log_p.exp()).sum(1),
            best.indices,
            best.values.exp(),
        )
        return cls(*(part.cpu().numpy() for part in found))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The predictions of some positions, then those of others."""
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


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
    shares = (STRONGEST * np.minimum(1.0, predictions.surprisals / full)).tolist()
    strengths = [None if math.isnan(share) else share for share in shares]  # None where no token stands
    shown = {
        "about": about,
        "note": cut(length, count, "tokens"),
        "kinds": [found.name for found in units],
        "tokens": list(zip([*tokens[:count], *behind], strengths, strict=False)),
        "numbers": numbers,
    }
    return Section("The text", "inspection/token_page.html", shown)


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
