"""Texts that are being written, as rows: what was written, when each ends, and how their next tokens are chosen."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ensue.decode.next_token import drawn, filtered, keep_top_p
from ensue.decode.sampling import Sampling
from ensue.errors import EnsueError
from ensue.extensions.serving.api import CompletionRequest
from ensue.extensions.serving.limits import STOPS
from ensue.text.tokenizer import Decoder
from ensue.types import State, widest

Finish = Literal["stop", "length"]
NUMBERS = 64
"""Random numbers that are drawn at a time."""


class TokenInfo(NamedTuple):
    """A token, the place in the text where it begins, the logarithm of its probability, and the most probable ones."""

    id: int
    offset: int
    log_p: float | None
    top: tuple[tuple[int, float], ...] | None


class SessionState(NamedTuple):
    """A text in a model: the state after all tokens but the last, which is read next.

    `ids` are the newest tokens with the last one: as many as a context holds, or for a model without one, the last.
    """

    state: State
    ids: NDArray[np.int64]


class Row:
    """One choice of a request, written by the loop. Read `finish` before `pieces`: once set, no more pieces come."""

    def __init__(
        self, request: CompletionRequest, *, index: int, decoder: Decoder, bias: Tensor | None = None, offset: int = 0,
    ) -> None:  # fmt: skip
        self.request, self.left = request, request.max_tokens
        self.sampling, self.bias = request.sampling, bias
        self.needs_logprobs = request.logprobs is not None or request.num_rows > request.n
        self._numbers = _uniform(request.seed % (1 << 63), index)
        self._number: float | None = None
        self._decoder, self._stops, self._offset = decoder, Stops(request.stops), offset
        self.begin, self.taken = offset, 0
        """The place in the text where the first token begins, and the characters that the request has taken."""
        self.pieces: deque[str] = deque()
        self.infos: deque[TokenInfo] = deque()
        self.finish: Finish | None = None
        self.written = 0
        self.log_p = 0.0
        """The logarithm of the probability of all tokens, if logprobs are needed."""
        self.counts: Tensor | None = None
        """How often each token was written (V,), for penalties."""
        self.ids: NDArray[np.int64] = np.zeros(0, np.int64)
        """The ids that a context holds, with the token that is read next; see `SessionState`."""
        self.last = 0

    @property
    def mean_log_p(self) -> float:
        """The score by which choices are ranked."""
        return self.log_p / max(1, self.written)

    def draw(self) -> float:
        """Return the random number of the next token, in (0, 1]. It does not depend on other rows."""
        if self._number is None:
            self._number = next(self._numbers)
        return self._number

    def take(self, id: int, log_p: float | None = None, top: tuple[tuple[int, float], ...] | None = None) -> None:
        """The next token."""
        piece = self._decoder.feed(id)
        self.last, self._number = id, None
        self.written += 1
        self.left -= 1
        if log_p is not None:
            self.log_p += log_p
            if self.request.logprobs is not None:
                self.infos.append(TokenInfo(id, self._offset, log_p, top))
        self._offset += len(piece)
        text, has_ended = self._stops.feed(piece)
        if has_ended or self.left <= 0:
            self.end(text, "stop" if has_ended else "length")
        elif text:
            self.pieces.append(text)

    def end(self, text: str, why: Finish) -> None:
        """End the choice with a last piece of text."""
        if why == "length":
            rest, has_ended = self._stops.feed(self._decoder.flush())
            text += rest if has_ended else rest + self._stops.flush()
            why = "stop" if has_ended else why
        self.pieces.append(text)
        self.finish = why

    def text(self) -> str:
        """The new text; called by the request."""
        found = []
        while self.pieces:
            found.append(self.pieces.popleft())
        text = "".join(found)
        self.taken += len(text)
        return text

    def shown(self) -> Iterator[TokenInfo]:
        """The new tokens whose text the request has taken, without those of a stop string; called by the request."""
        while self.infos and (self.finish == "length" or self.infos[0].offset < self.begin + self.taken):
            yield self.infos.popleft()


def _uniform(seed: int, index: int) -> Iterator[float]:
    numbers = np.random.default_rng([seed, index])
    while True:
        yield from (1 - numbers.random(NUMBERS)).tolist()


class Stops:
    """Of several stop strings in a text that one counts which is complete first, however the text is cut in pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._patterns = [(stop, _borders(stop)) for stop in stops]
        self._matched, self._held = [0] * len(stops), ""
        """The characters of each stop string that the text ends with, and the longest such end."""

    def feed(self, piece: str) -> tuple[str, bool]:
        """The text that is final after one more piece, and whether the text has ended."""
        if not self._patterns:
            return piece, False
        for end, character in enumerate(piece, len(self._held) + 1):
            matched = zip(self._patterns, self._matched, strict=True)
            self._matched = [_next_match(stop, borders, size, character) for (stop, borders), size in matched]
            complete = [
                size for size, (stop, _) in zip(self._matched, self._patterns, strict=True) if size == len(stop)
            ]
            if complete:
                text, self._held = self._held + piece, ""
                return text[: end - max(complete)], True
        text, num_held = self._held + piece, max(self._matched)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held], False

    def flush(self) -> str:
        """The text held back, at the end of a text in which no stop string came."""
        text, self._held = self._held, ""
        return text


@lru_cache(STOPS << 6)  # the rows of a request have the same
def _borders(stop: str) -> tuple[int, ...]:
    """For each beginning of `stop`, the length of the longest other beginning that is its end (Knuth et al. 1977)."""
    borders = [0, 0]
    for character in stop[1:]:
        borders.append(_next_match(stop, borders, borders[-1], character))
    return tuple(borders)


def _next_match(stop: str, borders: Sequence[int], size: int, character: str) -> int:
    """The characters of `stop` with which a text ends after one more character; it ended with `size` of them."""
    while size and stop[size] != character:
        size = borders[size]
    return size + (stop[size] == character)


class Logprob(NamedTuple):
    """The logarithm of a token's probability, and the most probable tokens with theirs."""

    log_p: float
    top: tuple[tuple[int, float], ...]


class Chooser:
    """Chooses for these rows, in this order. What depends on the rows alone is worked out once, here."""

    def __init__(self, rows: Sequence[Row], device: torch.device) -> None:
        self.rows, self.device = rows, device
        drawn_from = {n: row.sampling for n, row in enumerate(rows) if not row.sampling.is_greedy}
        temperatures = [drawn_from[n].temperature if n in drawn_from else 1.0 for n in range(len(rows))]
        self.temperature = torch.tensor(temperatures, device=device).unsqueeze(1)
        self.greedy = [n for n in range(len(rows)) if n not in drawn_from]
        self.biased = [n for n, row in enumerate(rows) if row.bias is not None]
        penalties = [(row.request.frequency_penalty, row.request.presence_penalty) for row in rows]
        self.penalized = [n for n, of_row in enumerate(penalties) if any(of_row)]
        scaled = {n: replace(sampling, temperature=1.0) for n, sampling in drawn_from.items()}
        self.cut = {n: sampling for n, sampling in scaled.items() if replace(sampling, top_p=None) != Sampling()}
        in_nucleus = {n: sampling.top_p for n, sampling in scaled.items() if n not in self.cut}
        nucleus = {n: top_p for n, top_p in in_nucleus.items() if top_p is not None and top_p < 1}
        self.in_nucleus = list(nucleus)
        self.nucleus = torch.tensor(list(nucleus.values()), dtype=widest(device), device=device).unsqueeze(1)
        self.with_logprobs = [n for n, row in enumerate(rows) if row.needs_logprobs]

    def next(self, logits: Float[Tensor, "R V"]) -> tuple[list[int], dict[int, Logprob]]:
        """The next id of each row, and the logprobs of the rows that need them; the ids are counted for penalties.

        If it fails, nothing has changed.
        """
        ids = self.choose(logits)
        logprobs = self.logprobs(logits, ids)
        self.count(ids, logits.shape[1])
        return ids, logprobs

    def choose(self, logits: Float[Tensor, "R V"]) -> list[int]:
        """The next id of each row. Raises EnsueError for logits that are not finite."""
        largest = logits.amax(-1, keepdim=True)
        if not largest.isfinite().all():
            raise EnsueError("the model's scores of the next token are not finite: its training has diverged")
        if self.biased or self.penalized:
            logits = self._shifted(logits)
            largest = logits.amax(-1, keepdim=True)
        if len(self.greedy) == len(self.rows):
            return logits.argmax(-1).tolist()
        scaled = (logits - largest) / self.temperature
        self._filter(scaled)
        u = torch.tensor([row.draw() for row in self.rows], dtype=widest(self.device), device=self.device)
        ids = drawn(scaled, u.unsqueeze(1))
        if self.greedy:
            ids[self.greedy] = logits[self.greedy].argmax(-1)
        return ids.tolist()

    def _shifted(self, logits: Tensor) -> Tensor:
        logits = logits.clone()
        for n in self.biased:
            bias = self.rows[n].bias
            assert bias is not None
            logits[n] += bias
        for n in self.penalized:
            request, counts = self.rows[n].request, self.rows[n].counts
            if counts is not None:
                logits[n] -= request.frequency_penalty * counts + request.presence_penalty * (counts > 0)
        return logits

    def _filter(self, scaled: Tensor) -> None:
        """Gives -∞ to tokens that may not be drawn, in place: top-k, top-p, min-p."""
        for n, sampling in self.cut.items():
            scaled[n] = filtered(scaled[n, None], sampling)[0]
        if self.in_nucleus:
            scaled[self.in_nucleus] = keep_top_p(scaled[self.in_nucleus], self.nucleus)

    def logprobs(self, logits: Float[Tensor, "R V"], ids: Sequence[int]) -> dict[int, Logprob]:
        """The logprobs of the rows that need them, from the model's own probabilities, by row."""
        if not self.with_logprobs:
            return {}
        some = logits if len(self.with_logprobs) == len(self.rows) else logits[self.with_logprobs]
        most = max(self.rows[n].request.logprobs or 0 for n in self.with_logprobs)
        found = logprobs_of(some, [ids[n] for n in self.with_logprobs], most)
        return {
            n: Logprob(one.log_p, one.top[: self.rows[n].request.logprobs or 0])
            for n, one in zip(self.with_logprobs, found, strict=True)
        }

    def count(self, ids: Sequence[int], size: int) -> None:
        """Remembers which tokens were written, for penalties."""
        for n in self.penalized:
            row = self.rows[n]
            row.counts = torch.zeros(size, device=self.device) if row.counts is None else row.counts
            row.counts[ids[n]] += 1


def logprobs_of(logits: Float[Tensor, "R V"], ids: Sequence[int], most: int) -> list[Logprob]:
    """The logarithms of the probabilities of `ids`, and of the `most` most probable tokens of each row."""
    log_p = logits.float().log_softmax(-1)
    of_ids = log_p[range(len(ids)), list(ids)].tolist()
    if not most:
        return [Logprob(one, ()) for one in of_ids]
    values, tokens = log_p.topk(min(most, log_p.shape[1]))
    tops = zip(tokens.tolist(), values.tolist(), strict=True)
    return [
        Logprob(one, tuple((id, value) for id, value in zip(*top, strict=True) if value > -math.inf))
        for one, top in zip(of_ids, tops, strict=True)
    ]
