"""The surprisals of a text: of each token, as values and lines; summed over pieces, which are the items of a score."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.sources import TextSource, is_stream, stream_text
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
    """The part of the text that is unknown to the model, if the symbol stands for one."""

    def __repr__(self) -> str:
        return f"{self.symbol if self.text is None else self.text!r} {self.nats:.2f}"

    def as_json(self) -> dict[str, Any]:
        """The token, its nats, and of an unknown one the text."""
        unknown = {} if self.text is None else {"text": self.text}
        return {"token": self.symbol, "nats": round(max(self.nats, 0.0), 6), **unknown}


class Surprisals(Answers[TokenScore]):
    """The surprisals of the tokens of a text; a notebook shows the text in colors."""

    @property
    def tokens(self) -> list[str]:
        """The tokens as they stand in the text, as far as it is known."""
        return [score.symbol if score.text is None else score.text for score in self]

    def _repr_html_(self) -> str:
        tokens = self.tokens
        gap = "" if any(token != token.strip() or len(token) == 1 for token in tokens) else " "
        starts = accumulate((len(token) + len(gap) for token in tokens), initial=0)
        places = [(start, start + len(token)) for start, token in zip(starts, tokens, strict=False)]
        most = max((score.nats for score in self), default=0.0) or 1.0
        weights = [
            Weight(max(score.nats, 0.0) / most, "for", f"{token!r}: {score.nats:.3f} nats")
            for score, token in zip(self, tokens, strict=True)
        ]
        text = weighted_text(ShownText(gap.join(tokens), places), weights)
        total = f"{sum(score.nats for score in self):,.2f} nats in {len(self):,} tokens; full color: {most:.2f} nats"
        return html([Section("", "inspection/plain.html", {"about": total, "shown": text})])


def token_scores(tokenizer: Tokenizer, text: str, ids: Sequence[int], nats: Iterable[float]) -> Iterator[TokenScore]:
    """The scores of the tokens `ids` of a text."""
    known = tokenizer.unknown_id is None or tokenizer.unknown_id not in ids
    written = [None] * len(ids) if known else tokenizer.written(text)
    for id, one, part in zip(ids, nats, written, strict=True):
        score = TokenScore(tokenizer.symbol(id), one)
        score.text = part if id == tokenizer.unknown_id else None
        yield score


class Scorer(Protocol):
    """A scorer of the tokens of texts in pieces."""

    def score_stream(self, chunks: Iterable[str]) -> Iterator[TokenScore]:
        """The surprisal of each token."""


def score_lines(scorer: Scorer, path: str, encoding: str, *, as_json: bool) -> Iterator[str]:
    """A line (or JSON object) for each token of a text: nats, the token as JSON, the text of an unknown one."""
    chunks = stream_text(path, encoding) if is_stream(path) else TextSource(path, encoding=encoding).chunks()
    for score in scorer.score_stream(chunks):
        if as_json:
            yield json.dumps(score.as_json(), ensure_ascii=False)
        else:
            parts = [score.symbol] if score.text is None else [score.symbol, score.text]
            columns = (json.dumps(part, ensure_ascii=False)[1:-1] for part in parts)
            yield "\t".join([f"{max(score.nats, 0.0):9.4f}", *columns])


PIECE_CHARACTERS = 400
BLOCK_TOKENS = 64


def pieces(chunks: Iterable[str]) -> Iterator[str]:
    """Pieces of about 400 characters, cut where no tokenizer makes a token across; the same for every model."""
    for chunk in chunks:
        start = 0
        while start < len(chunk):
            width = PIECE_CHARACTERS
            while (cut := last_boundary(chunk[start : start + width])) is None and start + width < len(chunk):
                width *= 4
            end = len(chunk) if cut is None or start + width >= len(chunk) else start + cut
            yield chunk[start:end]
            start = end


class NatsOfParts:
    """Adds up the surprisals of a text by its parts, which end at `ends`."""

    def __init__(self, ends: NDArray[np.int64]) -> None:
        self.ends, self.totals = ends, np.zeros(len(ends))

    @classmethod
    def of_blocks(cls, tokens: int) -> NatsOfParts:
        """The parts are blocks of 64 tokens, and the rest."""
        return cls(np.minimum(np.arange(BLOCK_TOKENS, tokens + BLOCK_TOKENS, BLOCK_TOKENS), tokens))

    def __call__(self, positions: NDArray[np.int64], nats: Tensor) -> None:
        parts = np.searchsorted(self.ends, positions, side="right")
        self.totals += np.bincount(parts, nats.double().cpu().numpy(), len(self.ends))

    @property
    def tokens(self) -> NDArray[np.int64]:
        """The number of tokens of each part."""
        return np.diff(self.ends, prepend=0)


def counted(source: Iterable[str], encode: Callable[[str], Any]) -> NDArray[np.int64]:
    """The tokens and the characters (N, 2) of each piece of a text."""
    return np.array([(len(encode(piece)), len(piece)) for piece in pieces(source)], np.int64).reshape(-1, 2)
