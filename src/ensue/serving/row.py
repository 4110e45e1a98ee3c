"""A text that is being written: how its tokens are chosen, what was written so far, and when it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ensue.serving.completion_request import CompletionRequest
from ensue.text.tokenizer import Decoder
from ensue.types import State

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
    """One choice of a request. The loop writes it; the request reads `finish` first and `pieces` then: if
    `finish` is set, no more pieces come.
    """

    def __init__(
        self, request: CompletionRequest, *, index: int, decoder: Decoder, bias: Tensor | None = None, offset: int = 0,
    ) -> None:  # fmt: skip
        self.request, self.left = request, request.max_tokens
        self.sampling, self.bias = request.sampling, bias
        self.needs_logprobs = request.logprobs is not None or request.num_rows > request.n
        self._numbers = _uniform(request.seed % (1 << 63), index)
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
    def has_penalties(self) -> bool:
        """Whether tokens that were written before become less probable, or more."""
        return bool(self.request.frequency_penalty or self.request.presence_penalty)

    @property
    def mean_log_p(self) -> float:
        """The score by which choices are ranked."""
        return self.log_p / max(1, self.written)

    def draw(self) -> float:
        """The next random number, in (0, 1]. It does not depend on other rows."""
        return next(self._numbers)

    def take(self, id: int, log_p: float | None = None, top: tuple[tuple[int, float], ...] | None = None) -> None:
        """The next token."""
        piece = self._decoder.feed(id)
        self.last = id
        self.written += 1
        self.left -= 1
        if log_p is not None:
            self.log_p += log_p
            if self.request.logprobs is not None:
                self.infos.append(TokenInfo(id, self._offset, log_p, top))
        self._offset += len(piece)
        text, has_ended = self._stops.feed(piece)
        if has_ended or self.left <= 0:
            self._end(text, "stop" if has_ended else "length")
        elif text:
            self.pieces.append(text)

    def _end(self, text: str, why: Finish) -> None:
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
        """The tokens whose text was taken and that were not shown yet; called by the request. Those of a stop string
        never are.
        """
        while self.infos and (self.finish == "length" or self.infos[0].offset < self.begin + self.taken):
            yield self.infos.popleft()

    def end_at_once(self) -> None:
        """A choice of no tokens."""
        self._end("", "length")


def _uniform(seed: int, index: int) -> Iterator[float]:
    numbers = np.random.default_rng([seed, index])
    while True:
        yield from (1 - numbers.random(NUMBERS)).tolist()


class Stops:
    """Of several stop strings in a text that one counts which is complete first, however the text is cut in pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops, self._held = tuple(stops), ""

    def feed(self, piece: str) -> tuple[str, bool]:
        """The text that is final after one more piece, and whether the text has ended."""
        if not self.stops:
            return piece, False
        text = self._held + piece
        found = [(place + len(stop), place) for stop in self.stops if (place := text.find(stop)) >= 0]
        if found:
            self._held = ""
            return text[: min(found)[1]], True
        kept = max(_overlap(text, stop) for stop in self.stops)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept], False

    def flush(self) -> str:
        """The text held back, at the end of a text in which no stop string came."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` with which `stop` begins."""
    most = min(len(text), len(stop) - 1)
    return next((size for size in range(most, 0, -1) if stop.startswith(text[len(text) - size :])), 0)
