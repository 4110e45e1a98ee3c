"""Rows of a batch: their generated text, stop strings and log-probabilities, and the sampler of next tokens."""

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

from ensue.decode.generation import draw_with, filter_logits, keep_top_p
from ensue.decode.sampling import Sampling
from ensue.errors import EnsueError
from ensue.extensions.serving.api import CompletionRequest
from ensue.extensions.serving.limits import MAX_STOPS
from ensue.text.tokenizer import Decoder
from ensue.types import State, widest_float

FinishReason = Literal["stop", "length"]
NUM_BUFFERED_DRAWS = 64
"""The number of random numbers that are drawn at a time."""


class TokenInfo(NamedTuple):
    """A token, its offset in the text, its log-probability, and the most probable tokens at its position."""

    id: int
    offset: int
    log_p: float | None
    top: tuple[tuple[int, float], ...] | None


class SessionState(NamedTuple):
    """The state after all tokens of a text but the last, which is read next.

    `ids` are the last tokens of the text: as many as the context of the model, or one for a model without context.
    """

    state: State
    ids: NDArray[np.int64]


class Row:
    """One completion of a request (a choice in the API), to which the loop adds text.

    Other threads must read `finish` before `pieces`, since the loop adds no pieces after `finish` is set.
    """

    def __init__(
        self, request: CompletionRequest, *, index: int, decoder: Decoder, bias: Tensor | None = None, offset: int = 0,
    ) -> None:  # fmt: skip
        self.request, self.remaining = request, request.max_tokens
        self.sampling, self.bias = request.sampling, bias
        self.needs_logprobs = request.logprobs is not None or request.num_rows > request.n
        self._numbers = _draw_uniform(request.seed % (1 << 63), index)
        self._number: float | None = None
        self._decoder, self._stops, self._offset = decoder, StopStrings(request.stops), offset
        self.begin, self.num_taken = offset, 0
        """The offset of the first token in the text, and the number of characters that `take_text` has returned."""
        self.pieces: deque[str] = deque()
        self.infos: deque[TokenInfo] = deque()
        self.finish: FinishReason | None = None
        self.num_tokens = 0
        self.log_p = 0.0
        """The sum of the log-probabilities of the tokens, if log-probabilities are needed."""
        self.counts: Tensor | None = None
        """The counts (V,) of generated tokens, for penalties."""
        self.ids: NDArray[np.int64] = np.zeros(0, np.int64)
        """The ids of the context, as in `SessionState`."""
        self.last = 0

    def draw(self) -> float:
        """Return the random number in (0, 1] for the next token. It does not depend on other rows."""
        if self._number is None:
            self._number = next(self._numbers)
        return self._number

    def append(self, id: int, log_p: float | None = None, top: tuple[tuple[int, float], ...] | None = None) -> None:
        piece = self._decoder.feed(id)
        self.last, self._number = id, None
        self.num_tokens += 1
        self.remaining -= 1
        if log_p is not None:
            self.log_p += log_p
            if self.request.logprobs is not None:
                self.infos.append(TokenInfo(id, self._offset, log_p, top))
        self._offset += len(piece)
        text, has_ended = self._stops.feed(piece)
        if has_ended or self.remaining <= 0:
            self.end(text, "stop" if has_ended else "length")
        elif text:
            self.pieces.append(text)

    def end(self, text: str, reason: FinishReason) -> None:
        """Finish the choice with the last text."""
        if reason == "length":
            flushed, has_ended = self._stops.feed(self._decoder.flush())
            text += flushed if has_ended else flushed + self._stops.flush()
            reason = "stop" if has_ended else reason
        self.pieces.append(text)
        self.finish = reason

    def take_text(self) -> str:
        """Return and remove the new text. The loop does not call this method."""
        text = ""
        while self.pieces:
            text += self.pieces.popleft()
        self.num_taken += len(text)
        return text

    def take_infos(self) -> Iterator[TokenInfo]:
        """Yield and remove the tokens of the text that `take_text` has returned. The loop does not call this method."""
        while self.infos and (self.finish == "length" or self.infos[0].offset < self.begin + self.num_taken):
            yield self.infos.popleft()


def _draw_uniform(seed: int, index: int) -> Iterator[float]:
    numbers = np.random.default_rng([seed, index])
    while True:
        yield from (1 - numbers.random(NUM_BUFFERED_DRAWS)).tolist()


class StopStrings:
    """A matcher of stop strings in a text that arrives in pieces. The first complete stop string ends the text."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._patterns = [(stop, _compute_borders(stop)) for stop in stops]
        self._matched, self._withheld = [0] * len(stops), ""
        """The length of the partial match of each stop string at the end of the text, and the longest match."""

    def feed(self, piece: str) -> tuple[str, bool]:
        """Add a piece. Return the text before any partial match, and whether a stop string has ended the text."""
        if not self._patterns:
            return piece, False
        for end, character in enumerate(piece, len(self._withheld) + 1):
            matched = zip(self._patterns, self._matched, strict=True)
            self._matched = [_extend_match(stop, borders, size, character) for (stop, borders), size in matched]
            ended = [size for size, (stop, _) in zip(self._matched, self._patterns, strict=True) if size == len(stop)]
            if ended:
                text, self._withheld = self._withheld + piece, ""
                return text[: end - max(ended)], True
        text, num_withheld = self._withheld + piece, max(self._matched)
        self._withheld = text[len(text) - num_withheld :]
        return text[: len(text) - num_withheld], False

    def flush(self) -> str:
        """Return the partial match at the end of a text."""
        text, self._withheld = self._withheld, ""
        return text


@lru_cache(MAX_STOPS << 6)  # rows of a request share their stop strings
def _compute_borders(stop: str) -> tuple[int, ...]:
    """Return the border lengths of the prefixes of `stop` (the failure function of Knuth, Morris and Pratt 1977)."""
    borders = [0, 0]
    for character in stop[1:]:
        borders.append(_extend_match(stop, borders, borders[-1], character))
    return tuple(borders)


def _extend_match(stop: str, borders: Sequence[int], size: int, character: str) -> int:
    """Return the number of matched characters of `stop` after a character, if `size` characters matched before."""
    while size and stop[size] != character:
        size = borders[size]
    return size + (stop[size] == character)


class TokenLogprob(NamedTuple):
    """The log-probability of a token, and the most probable tokens with their log-probabilities."""

    log_p: float
    top: tuple[tuple[int, float], ...]


class RowSampler:
    """A sampler of the next tokens of rows. Rows with the same kind of options are processed together."""

    def __init__(self, rows: Sequence[Row], device: torch.device) -> None:
        self.rows, self.device = rows, device
        sampled = {n: row.sampling for n, row in enumerate(rows) if not row.sampling.is_greedy}
        temperatures = [sampled[n].temperature if n in sampled else 1.0 for n in range(len(rows))]
        self.temperature = torch.tensor(temperatures, device=device).unsqueeze(1)
        self.greedy = [n for n in range(len(rows)) if n not in sampled]
        self.biased = [n for n, row in enumerate(rows) if row.bias is not None]
        penalties = [(row.request.frequency_penalty, row.request.presence_penalty) for row in rows]
        self.penalized = [n for n, row_penalties in enumerate(penalties) if any(row_penalties)]
        scaled = {n: replace(sampling, temperature=1.0) for n, sampling in sampled.items()}
        self.filtered = {n: sampling for n, sampling in scaled.items() if replace(sampling, top_p=None) != Sampling()}
        in_nucleus = {n: sampling.top_p for n, sampling in scaled.items() if n not in self.filtered}
        nucleus = {n: top_p for n, top_p in in_nucleus.items() if top_p is not None and top_p < 1}
        self.in_nucleus = list(nucleus)
        self.nucleus = torch.tensor(list(nucleus.values()), dtype=widest_float(device), device=device).unsqueeze(1)
        self.with_logprobs = [n for n, row in enumerate(rows) if row.needs_logprobs]

    def next(self, logits: Float[Tensor, "R V"]) -> tuple[list[int], dict[int, TokenLogprob]]:
        """Return the next id of each row, and the log-probabilities of rows that need them. Count ids for penalties.

        If an exception is raised, all rows are unchanged.
        """
        ids = self.choose(logits)
        logprobs = self.logprobs(logits, ids)
        self.count(ids, logits.shape[1])
        return ids, logprobs

    def choose(self, logits: Float[Tensor, "R V"]) -> list[int]:
        """Return the next id of each row. Raises EnsueError for logits that are not finite."""
        largest = logits.amax(-1, keepdim=True)
        if not largest.isfinite().all():
            raise EnsueError("the model's scores of the next token are not finite: its training has diverged")
        if self.biased or self.penalized:
            logits = self._shift(logits)
            largest = logits.amax(-1, keepdim=True)
        if len(self.greedy) == len(self.rows):
            return logits.argmax(-1).tolist()
        scaled = (logits - largest) / self.temperature
        self._filter(scaled)
        u = torch.tensor([row.draw() for row in self.rows], dtype=widest_float(self.device), device=self.device)
        ids = draw_with(scaled, u.unsqueeze(1))
        if self.greedy:
            ids[self.greedy] = logits[self.greedy].argmax(-1)
        return ids.tolist()

    def _shift(self, logits: Tensor) -> Tensor:
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
        for n, sampling in self.filtered.items():
            scaled[n] = filter_logits(scaled[n, None], sampling)[0]
        if self.in_nucleus:
            scaled[self.in_nucleus] = keep_top_p(scaled[self.in_nucleus], self.nucleus)

    def logprobs(self, logits: Float[Tensor, "R V"], ids: Sequence[int]) -> dict[int, TokenLogprob]:
        """Return the log-probabilities of the rows that need them, before temperature and filters."""
        if not self.with_logprobs:
            return {}
        row_logits = logits if len(self.with_logprobs) == len(self.rows) else logits[self.with_logprobs]
        num_top = max(self.rows[n].request.logprobs or 0 for n in self.with_logprobs)
        entries = token_logprobs(row_logits, [ids[n] for n in self.with_logprobs], num_top)
        return {
            n: TokenLogprob(entry.log_p, entry.top[: self.rows[n].request.logprobs or 0])
            for n, entry in zip(self.with_logprobs, entries, strict=True)
        }

    def count(self, ids: Sequence[int], size: int) -> None:
        for n in self.penalized:
            row = self.rows[n]
            row.counts = torch.zeros(size, device=self.device) if row.counts is None else row.counts
            row.counts[ids[n]] += 1


def token_logprobs(logits: Float[Tensor, "R V"], ids: Sequence[int], num_top: int) -> list[TokenLogprob]:
    """Return the log-probabilities of `ids` and of the `num_top` most probable tokens of each row."""
    log_p = logits.float().log_softmax(-1)
    chosen = log_p[range(len(ids)), list(ids)].tolist()
    if not num_top:
        return [TokenLogprob(value, ()) for value in chosen]
    values, tokens = log_p.topk(min(num_top, log_p.shape[1]))
    tops = [
        tuple((id, value) for id, value in zip(*top, strict=True) if value > -math.inf)
        for top in zip(tokens.tolist(), values.tolist(), strict=True)
    ]
    return list(map(TokenLogprob, chosen, tops))
