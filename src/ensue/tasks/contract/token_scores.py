"""The surprisal of every token, as values and as lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from ensue.data.sources import TextSource
from ensue.data.streams import is_stream, stream_text


class TokenScore(NamedTuple):
    """A token as text, and its surprisal in nats."""

    symbol: str
    nats: float

    def __repr__(self) -> str:
        return f"{self.symbol!r} {self.nats:.2f}"


def scores_json(scores: Iterable[TokenScore]) -> dict[str, Any]:
    """The tokens of a text with their nats, and the nats of all, as JSON values."""
    found = [(symbol, round(max(nats, 0.0), 6)) for symbol, nats in scores]
    tokens = [{"token": symbol, "nats": nats} for symbol, nats in found]
    return {"nats": round(sum(nats for _, nats in found), 6), "tokens": tokens}


class Scorer(Protocol):
    """What scores the tokens of texts in pieces."""

    def score_stream(self, chunks: Iterable[str]) -> Iterator[TokenScore]:
        """The surprisal of each token."""


def score_lines(scorer: Scorer, path: str, encoding: str, *, as_json: bool) -> Iterator[str]:
    """A line for each token of a text ("-": stdin): its nats and the token as a JSON string, or one JSON object."""
    chunks = stream_text(path, encoding) if is_stream(path) else TextSource(path, encoding=encoding).chunks()
    for symbol, nats in scorer.score_stream(chunks):
        if as_json:
            yield json.dumps({"token": symbol, "nats": round(max(nats, 0.0), 6)}, ensure_ascii=False)
        else:
            yield f"{max(nats, 0.0):9.4f}\t{json.dumps(symbol, ensure_ascii=False)[1:-1]}"
