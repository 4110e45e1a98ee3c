"""The section of a page with a text as tokens, colored by surprisal or by a unit, and the predictions at each token."""

import math
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.inspection.page import MAX_TITLE_CHARACTERS, Section, clip, note_cut
from ensue.inspection.texts import MAX_COLOR_PERCENT
from ensue.inspection.units import Units, find_followers
from ensue.types import to_float64

NO_TOKEN = -1
"""The target of a position without a token, such as the end of a text or a mask."""
MAX_OPTIONS = 5
"""The maximum number of most probable tokens that are shown at a position."""


class Predictions(NamedTuple):
    """Predictions at T positions: surprisals (T,) of the tokens in nats, their ranks (T,) from 1, entropies (T,) in
    nats, and the K most probable ids (T, K) with their probabilities (T, K), in decreasing order.

    At a position without a token, the surprisal is NaN and the rank 0.
    """

    surprisals: NDArray[np.float64]
    ranks: NDArray[np.int64]
    entropies: NDArray[np.float64]
    ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    @classmethod
    def of(cls, logits: Tensor, targets: NDArray[np.int64]) -> Self:
        """Return the predictions of logits (T, V) for targets (T,), which may be `NO_TOKEN`."""
        log_p = to_float64(logits).log_softmax(-1)
        has_token = torch.from_numpy(targets != NO_TOKEN).to(log_p.device)
        chosen = log_p.gather(1, torch.from_numpy(np.maximum(targets, 0)).to(log_p.device)[:, None])
        best = log_p.topk(min(MAX_OPTIONS, log_p.shape[1]), dim=1)
        columns = (
            torch.where(has_token, -chosen[:, 0], torch.nan), torch.where(has_token, 1 + (log_p > chosen).sum(1), 0),
            torch.special.entr(log_p.exp()).sum(1), best.indices, best.values.exp(),
        )  # fmt: skip
        return cls(*(column.cpu().numpy() for column in columns))

    @classmethod
    def joined(cls, predictions: Sequence[Self]) -> Self:
        """Return the concatenation of predictions along the positions."""
        return cls(*(np.concatenate(arrays) for arrays in zip(*predictions, strict=True)))


MAX_SHOWN_TOKENS = 5_000
"""The maximum number of tokens of a text on a page."""
MAX_FOLLOWERS = 4
"""The maximum number of units that are listed for a property of the text."""
MAX_UNIT_BYTES = 1_500_000
"""The maximum number of values of units on a page, with one byte per value."""
MAX_SYMBOL_CHARACTERS = 40
BLANKS = str.maketrans({" ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥"})


def make_title(text: str) -> str:
    """Return the title of the page of a text, which is the beginning of the text."""
    return clip(" ".join(text.split()) or show_token(text), MAX_TITLE_CHARACTERS)


def show_token(symbol: str) -> str:
    """Return a token as a short text with visible blanks."""
    return clip(symbol.translate(BLANKS), MAX_SYMBOL_CHARACTERS)


def text_section(
    tokens: Sequence[str], ids: Sequence[int], predictions: Predictions, tokenizer: Any, *, length: int, about: str,
    units: Sequence[Units] = (), correlations: Sequence[NDArray[np.float64]] = (),
) -> Section:  # fmt: skip
    """Return the section of a text with `length` tokens, of which `tokens` are the first.

    `predictions` may have one more position, the next token. `correlations` of `units` with properties of the text
    determine which units are on the page if there are too many.
    """
    count = min(len(tokens), MAX_SHOWN_TOKENS)
    full, chosen = math.log(tokenizer.vocabulary_size), _choose_units(units, correlations, count)
    next_token = ["▸"] if count == length < len(predictions.ranks) else []
    numbers = _numbers(ids, predictions, tokenizer.symbol, count, count + len(next_token)) | {
        "full": full,
        "groups": [_pack_units(layer_units, shown, count) for layer_units, shown in zip(units, chosen, strict=True)],
    }
    shares = (MAX_COLOR_PERCENT * np.minimum(1.0, predictions.surprisals / full)).tolist()
    strengths = [None if math.isnan(share) else share for share in shares]  # None without a token
    content = {
        "about": about, "note": note_cut(length, count, "tokens"), "kinds": [layer_units.name for layer_units in units],
        "tokens": list(zip([*tokens[:count], *next_token], strengths, strict=False)), "numbers": numbers,
    }  # fmt: skip
    return Section("The text", "inspection/token_page.html", content)


def _choose_units(units: Sequence[Units], correlations: Sequence[NDArray[np.float64]], tokens: int) -> list[list[int]]:
    """Return the units on a page with `tokens` tokens: all units, or the most correlated units in each of `units`."""
    max_units = max(1, MAX_UNIT_BYTES // max(1, tokens * len(units)))
    scores = [np.abs(r).max(0) for r in correlations] or [layer_units.values.std(0) for layer_units in units]
    chosen = [set(np.argsort(-layer_scores, kind="stable")[:max_units].tolist()) for layer_scores in scores]
    for row in range(len(correlations[0]) if correlations else 0):
        for follower in find_followers(correlations, row, MAX_FOLLOWERS):
            chosen[follower.group].add(follower.number)
    return [sorted(numbers) for numbers in chosen]


def _numbers(
    ids: Sequence[int], predictions: Predictions, symbol: Callable[[int], str], count: int, positions: int
) -> dict[str, Any]:
    """Return the data for the page's script, with a list item for each position; `symbols` are texts of tokens."""
    best = predictions.ids[:positions]
    named = np.unique(np.concatenate((best.ravel(), np.asarray(ids[:count], np.int64))))
    order = {id: number for number, id in enumerate(named.tolist())}
    return {
        "tokens": count, "symbols": [show_token(symbol(id)) for id in order],
        "token": [order[id] for id in list(ids)[:count]],
        "surprisal": [None if math.isnan(nats) else round(nats, 4) for nats in predictions.surprisals[:positions]],
        "rank": predictions.ranks[:positions].tolist(),
        "entropy": [round(nats, 4) for nats in predictions.entropies[:positions].tolist()],
        "options": [
            [[order[id], round(p, 5)] for id, p in zip(*row, strict=True)]
            for row in zip(best.tolist(), predictions.probabilities[:positions].tolist(), strict=True)
        ],
    }  # fmt: skip


def _pack_units(units: Units, chosen: Sequence[int], count: int) -> dict[str, Any]:
    """Return values of units as bytes: 0 is a unit's minimum (`low`), 255 its maximum (`high`)."""
    values = units.values[:count, list(chosen)].astype(np.float64)
    low, high = values.min(0), values.max(0)
    steps = np.divide(values - low, high - low, out=np.zeros_like(values), where=high > low)
    return {
        "name": units.name, "units": list(chosen), "low": [float(f"{value:.5g}") for value in low],
        "high": [float(f"{value:.5g}") for value in high], "values": pack_shares(steps.T),
    }  # fmt: skip


def pack_shares(shares: NDArray[Any]) -> str:
    """Return numbers in [0, 1] as bytes in base64."""
    return b64encode(np.rint(255 * shares).astype(np.uint8).tobytes()).decode()
