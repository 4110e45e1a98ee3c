"""Surprisals of the tokens of a text, and their sums over short pieces, which are the items of significance tests."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ensue.inspection.notebook import Answers, html
from ensue.inspection.page import Section
from ensue.inspection.texts import ShownText, Weight, weighted_text
from ensue.text.boundaries import last_boundary
from ensue.text.tokenizer import Tokenizer


class _Surprisal(NamedTuple):
    symbol: str
    nats: float


class TokenScore(_Surprisal):
    """A token as text, and its surprisal in nats."""

    text: str | None = None
    """The text of an unknown token; None for other tokens."""

    def __repr__(self) -> str:
        return f"{self.symbol if self.text is None else self.text!r} {self.nats:.2f}"

    def as_json(self) -> dict[str, Any]:
        """Return the token, its surprisal in nats, and the text of an unknown token."""
        unknown = {} if self.text is None else {"text": self.text}
        return {"token": self.symbol, "nats": round(max(self.nats, 0.0), 6), **unknown}

    def line(self, *, as_json: bool) -> str:
        """Return a JSON object, or columns: the surprisal, the token as JSON, and the text of an unknown token."""
        if as_json:
            return json.dumps(self.as_json(), ensure_ascii=False)
        texts = [self.symbol] if self.text is None else [self.symbol, self.text]
        return "\t".join([f"{max(self.nats, 0.0):9.4f}", *(json.dumps(t, ensure_ascii=False)[1:-1] for t in texts)])


class Surprisals(Answers[TokenScore]):
    """The surprisals of the tokens of a text; a notebook shows the text in colors."""

    @property
    def tokens(self) -> list[str]:
        """The tokens as strings: the text of an unknown token, the symbols of other tokens."""
        return [score.symbol if score.text is None else score.text for score in self]

    def _repr_html_(self) -> str:
        tokens = self.tokens
        gap = "" if any(token != token.strip() or len(token) == 1 for token in tokens) else " "
        starts = accumulate((len(token) + len(gap) for token in tokens), initial=0)
        spans = [(start, start + len(token)) for start, token in zip(starts, tokens, strict=False)]
        maximum = max((score.nats for score in self), default=0.0) or 1.0
        weights = [
            Weight(max(score.nats, 0.0) / maximum, "for", f"{token!r}: {score.nats:.3f} nats")
            for score, token in zip(self, tokens, strict=True)
        ]
        text = weighted_text(ShownText(gap.join(tokens), spans), weights)
        total = f"{sum(score.nats for score in self):,.2f} nats in {len(self):,} tokens; full color: {maximum:.2f} nats"
        return html([Section("", "inspection/plain.html", {"about": total, "shown": text})])


def token_scores(tokenizer: Tokenizer, text: str, ids: Sequence[int], nats: Iterable[float]) -> Iterator[TokenScore]:
    """Yield the scores of the tokens `ids` of a text."""
    are_known = tokenizer.unknown_id is None or tokenizer.unknown_id not in ids
    substrings = [None] * len(ids) if are_known else tokenizer.substrings(text)
    for id, surprisal, substring in zip(ids, nats, substrings, strict=True):
        score = TokenScore(tokenizer.symbol(id), surprisal)
        score.text = substring if id == tokenizer.unknown_id else None
        yield score


PIECE_CHARACTERS, PIECE_TOKENS = 400, 64
"""The approximate number of characters of a piece of a text, and of tokens of a piece of a file of ids."""


def split_pieces(chunks: Iterable[str]) -> Iterator[str]:
    """Yield pieces of about 400 characters, which end at token boundaries that all tokenizers have in common."""
    for chunk in chunks:
        start = 0
        while start < len(chunk):
            width = PIECE_CHARACTERS
            while (boundary := last_boundary(chunk[start : start + width])) is None and start + width < len(chunk):
                width *= 4
            end = len(chunk) if boundary is None or start + width >= len(chunk) else start + boundary
            yield chunk[start:end]
            start = end


class PieceNats:
    """The summed surprisals of pieces of a text, which end before the token positions `ends`."""

    def __init__(self, ends: NDArray[np.int64]) -> None:
        self.ends, self.totals = ends, np.zeros(len(ends))

    def __call__(self, positions: NDArray[np.int64], nats: Tensor) -> None:
        """Add the surprisals `nats` of the tokens at `positions`."""
        indices = np.searchsorted(self.ends, positions, side="right")
        self.totals += np.bincount(indices, nats.double().cpu().numpy(), len(self.ends))

    @property
    def tokens(self) -> NDArray[np.int64]:
        """The number of tokens of each piece."""
        return np.diff(self.ends, prepend=0)
