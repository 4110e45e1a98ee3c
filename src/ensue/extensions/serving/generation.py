"""A request in the generation loop: its prompts, its rows, and the events that notify its handler."""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.extensions.serving.api import reject
from ensue.extensions.serving.limits import MIN_LONG_TOKENS, Limits
from ensue.extensions.serving.row import Row, SessionState, TokenLogprob
from ensue.text.tokenizer import replace_surrogates
from ensue.types import State


class ThreadEvent:
    """An event that any thread may set, and that a coroutine awaits. The constructor needs a running event loop."""

    def __init__(self) -> None:
        self._loop, self._event, self._is_set = asyncio.get_running_loop(), asyncio.Event(), False

    def set(self) -> None:
        """Set the event. If the event is already set, the event loop is not woken again."""
        if not self._is_set:
            self._is_set = True
            with suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, within: float | None = None) -> None:
        """Wait until the event is set, for at most `within` seconds, and clear the event."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._event.wait()
        self._event.clear()
        self._is_set = False


@dataclass(frozen=True)
class EncodedPrompt:
    """The text of a prompt, and its ids without the start symbol."""

    ids: NDArray[np.int64]
    text: str


def encode_prompt(prompt: str | list[int], tokenizer: Any, limits: Limits, context: int | None) -> EncodedPrompt:
    """Return a tokenized prompt. Raises APIError for unknown ids and for too many tokens."""
    if isinstance(prompt, str):
        if len(prompt) > limits.text_characters:
            raise reject("prompt", f"more than {limits.text_characters:,} characters", "context_length_exceeded")
        text = replace_surrogates(prompt)
        ids = tokenizer.encode(text).astype(np.int64)
    else:
        if any(not 0 <= id < tokenizer.vocabulary_size for id in prompt):
            raise reject("prompt", f"an id is not from 0 to {tokenizer.vocabulary_size - 1}")
        ids, text = np.array(prompt, np.int64), tokenizer.decode(prompt)
    maximum = limits.prompt_tokens if context is None else min(context, limits.prompt_tokens)
    if len(ids) > maximum:
        raise reject("prompt", f"{len(ids)} tokens; this model reads at most {maximum}", "context_length_exceeded")
    return EncodedPrompt(ids, text)


class Generation:
    """A request in the loop. Its handler sets `is_cancelled`; the loop sets `num_open`, `error` and `session_state`."""

    def __init__(self, *, is_streamed: bool = False, has_session: bool = False) -> None:
        self.prompts: list[Prompt] = []
        self.unread: deque[Prompt] = deque()
        """The prompts that the loop has not read completely."""
        self.ready: deque[tuple[Row, State]] = deque()
        """The rows, with their states, that wait for a place in the batch."""
        self.progress, self.end = ThreadEvent(), ThreadEvent()
        """`progress` is set for each new token of a stream, and `end` when all rows have finished or failed."""
        self.is_streamed, self.has_session = is_streamed, has_session
        self.is_cancelled = False
        self.tokens = 0
        """The number of generated tokens."""
        self.num_open = 0
        """The number of unfinished rows."""
        self.error: Exception | None = None
        self.session_state: SessionState | None = None
        """The state from which the session continues."""

    @property
    def is_over(self) -> bool:
        return self.is_cancelled or self.error is not None

    def fail(self, error: Exception) -> None:
        """End the request with an error. Only the loop calls this method."""
        self.error = error
        self.notify()

    def notify(self) -> None:
        """Set the events for new tokens. Only the loop calls this method."""
        if self.is_streamed:
            self.progress.set()
        if not self.num_open or self.error is not None:
            self.end.set()

    @property
    def is_long(self) -> bool:
        """Whether the request has several open rows and many tokens."""
        return self.num_open > 1 and self.tokens > MIN_LONG_TOKENS

    def add(self, prompt: "Prompt") -> None:
        """Add a prompt with its rows."""
        self.prompts.append(prompt)
        self.unread.append(prompt)
        self.num_open += len(prompt.rows)


class Prompt:
    """The ids of a prompt, which the model reads after `state`. The last id is read by the first step of the rows.

    If `num_top` is not None, `logprobs` gets an entry for each id except the first.
    """

    def __init__(
        self, generation: Generation, ids: NDArray[np.int64], rows: Sequence[Row], *, state: State = None,
        num_top: int | None = None,
    ) -> None:  # fmt: skip
        self.generation, self.ids, self.rows, self.state, self.num_top = generation, ids, rows, state, num_top
        self.read = 0
        self.logprobs: list[TokenLogprob] = []

    @property
    def is_read(self) -> bool:
        """Whether all ids but the last are read."""
        return self.read >= len(self.ids) - 1

    def next_chunk(self, size: int) -> NDArray[np.int64]:
        """Return the next ids to read, at most `size`, and count them as read."""
        start = self.read
        self.read = min(start + size, len(self.ids) - 1)
        return self.ids[start : self.read]
