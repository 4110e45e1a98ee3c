"""A text that is being written: how its tokens are chosen, what was written so far, and when it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ensue.decode.sampling import GREEDY_BELOW, Sampling
from ensue.serving.stopping import Stops
from ensue.text.tokenizer import Decoder
from ensue.types import State

NUMBERS = 64
"""Random numbers that are drawn at a time."""


@dataclass(frozen=True)
class Choosing:
    """How tokens are chosen; the numbers of `ensue.decode.sampling.Sampling` and those of the API."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    bias: Tensor | None = None
    """What is added to the logits (V,)."""

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature < GREEDY_BELOW or self.top_p == 0

    @property
    def sampling(self) -> Sampling:
        """The tokens that may be drawn, once the temperature has done its work."""
        return Sampling(top_k=self.top_k, top_p=self.top_p, min_p=self.min_p)

    @property
    def has_penalties(self) -> bool:
        """Whether tokens that were written before become less probable, or more."""
        return bool(self.frequency_penalty or self.presence_penalty)


class TokenInfo(NamedTuple):
    """A token, the place in the text where it begins, the logarithm of its probability, and the most probable ones."""

    id: int
    offset: int
    log_p: float | None
    top: tuple[tuple[int, float], ...] | None


class Kept(NamedTuple):
    """A text in a model: the state after all tokens but the last, which is read next.

    `ids` are the newest tokens with the last one: as many as a context holds, or for a model without one, the last.
    """

    state: State
    ids: NDArray[np.int64]


class Row:
    """One choice of a request. The loop writes it; the request takes `pieces` and looks at `finish`, in that order
    reversed: what has come when `finish` is set is all there is.
    """

    def __init__(
        self, choosing: Choosing, *, seed: int, index: int, tokens: int, decoder: Decoder, stops: Stops,
        logprobs: int | None, offset: int = 0, sums: bool = False,
    ) -> None:  # fmt: skip
        self.choosing, self.left, self.logprobs = choosing, tokens, logprobs
        self.looks = logprobs is not None or sums
        self._numbers = _uniform(seed, index)
        self._decoder, self._stops, self._offset = decoder, stops, offset
        self.begin, self.taken = offset, 0
        """The place in the text where the first token begins, and the characters that the request has taken."""
        self.pieces: deque[str] = deque()
        self.infos: deque[TokenInfo] = deque()
        self.finish: str | None = None
        self.written = 0
        self.log_p = 0.0
        """The logarithm of the probability of all tokens, if they are looked at."""
        self.counts: Tensor | None = None
        """How often each token was written (V,), for penalties."""
        self.ids: NDArray[np.int64] = np.zeros(0, np.int64)
        """What a context holds, with the token that is read next; see `Kept`."""
        self.last = 0

    @property
    def mean_log_p(self) -> float:
        """What choices are ranked by."""
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
            if self.logprobs is not None:
                self.infos.append(TokenInfo(id, self._offset, log_p, top))
        self._offset += len(piece)
        text, has_ended = self._stops.feed(piece)
        if has_ended or self.left <= 0:
            self._end(text, "stop" if has_ended else "length")
        elif text:
            self.pieces.append(text)

    def _end(self, text: str, why: str) -> None:
        if why == "length":
            rest, has_ended = self._stops.feed(self._decoder.flush())
            text += rest if has_ended else rest + self._stops.flush()
            why = "stop" if has_ended else why
        self.pieces.append(text)
        self.finish = why

    def text(self) -> str:
        """What is new; called by the request."""
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
