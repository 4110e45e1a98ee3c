"""A request to write, as the loop sees it: its prompts, its rows, and events that say that something is new."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.extensions.serving.limits import LONG_TOKENS, Limits
from ensue.extensions.serving.refusal import wrong
from ensue.extensions.serving.row import Logprob, Row, SessionState
from ensue.text.utf8 import without_surrogates
from ensue.types import State


class Event:
    """An event that any thread may set, for a coroutine that waits. Made inside of the event loop."""

    def __init__(self) -> None:
        self._loop, self._event, self._is_set = asyncio.get_running_loop(), asyncio.Event(), False

    def set(self) -> None:
        """From any thread. It costs nothing while it is set."""
        if not self._is_set:
            self._is_set = True
            with suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, within: float | None = None) -> None:
        """Waits until the event is set, or for so many seconds, and clears it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._event.wait()
        self._event.clear()
        self._is_set = False


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt: its ids without the start symbol, and its text."""

    ids: NDArray[np.int64]
    text: str


def encoded(prompt: str | list[int], tokenizer: Any, limits: Limits, context: int | None) -> EncodedPrompt:
    """A prompt as ids. Raises Refusal for ids that are none, and for more tokens than are read."""
    if isinstance(prompt, str):
        if len(prompt) > limits.text_characters:
            raise wrong("prompt", f"more than {limits.text_characters:,} characters", "context_length_exceeded")
        text = without_surrogates(prompt)
        ids = tokenizer.encode(text).astype(np.int64)
    else:
        if any(not 0 <= id < tokenizer.vocabulary_size for id in prompt):
            raise wrong("prompt", f"an id is not from 0 to {tokenizer.vocabulary_size - 1}")
        ids, text = np.array(prompt, np.int64), tokenizer.decode(prompt)
    most = limits.prompt_tokens if context is None else min(context, limits.prompt_tokens)
    if len(ids) > most:
        raise wrong("prompt", f"{len(ids)} tokens; this model reads at most {most}", "context_length_exceeded")
    return EncodedPrompt(ids, text)


class Writing:
    """One request. `has_left` is set by its client, `left`, `error` and `session_state` by the loop."""

    def __init__(self, *, is_streamed: bool = False, has_session: bool = False) -> None:
        self.prompts: list[Prompt] = []
        self.unread: deque[Prompt] = deque()
        self.ready: deque[tuple[Row, State]] = deque()
        """The prompts that the loop has not read, and the rows that wait for room, with their states."""
        self.news, self.end = Event(), Event()
        """They are set at every new piece of a stream, and at the last one of any request."""
        self.is_streamed, self.has_session = is_streamed, has_session
        self.has_left = False
        self.tokens = 0
        """The tokens that the loop has written."""
        self.left = 0
        """The rows that have not ended."""
        self.error: Exception | None = None
        self.session_state: SessionState | None = None
        """The state that a session goes on from."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is computed for the request any more."""
        return self.has_left or self.error is not None

    def fail(self, error: Exception) -> None:
        """End with an error; called by the loop."""
        self.error = error
        self.tell()

    def tell(self) -> None:
        """Something is new; called by the loop."""
        if self.is_streamed:
            self.news.set()
        if not self.left or self.error is not None:
            self.end.set()

    @property
    def is_long(self) -> bool:
        """Whether it has several rows, and has had many steps."""
        return self.left > 1 and self.tokens > LONG_TOKENS

    def add(self, prompt: Prompt) -> None:
        """One more prompt, with its rows."""
        self.prompts.append(prompt)
        self.unread.append(prompt)
        self.left += len(prompt.rows)


class Prompt:
    """Ids that are read from `state`, all but the last, which the first step reads.

    With `num_top` the tokens of the prompt get `logprobs` too: one entry for each id but the first.
    """

    def __init__(
        self,
        writing: Writing,
        ids: NDArray[np.int64],
        rows: Sequence[Row],
        *,
        state: State = None,
        num_top: int | None = None,
    ) -> None:
        self.writing, self.ids, self.rows, self.state, self.num_top = writing, ids, rows, state, num_top
        self.read = 0
        self.logprobs: list[Logprob] = []

    @property
    def is_read(self) -> bool:
        """Whether only the last id is left."""
        return self.read >= len(self.ids) - 1

    def next_piece(self, size: int) -> NDArray[np.int64]:
        """The next ids to read."""
        start = self.read
        self.read = min(start + size, len(self.ids) - 1)
        return self.ids[start : self.read]
