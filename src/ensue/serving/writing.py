"""A request to write, as the loop sees it: its prompts, its rows, and bells that say that something is new."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from ensue.serving.chooser import Looked
from ensue.serving.row import Kept, Row
from ensue.types import State


class Bell:
    """Wakes a coroutine from another thread. Made inside of the event loop."""

    def __init__(self) -> None:
        self._loop, self._event, self._rung = asyncio.get_running_loop(), asyncio.Event(), False

    def ring(self) -> None:
        """From any thread. It costs nothing while nobody has listened since the last time."""
        if not self._rung:
            self._rung = True
            with suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(self._event.set)

    async def heard(self, within: float | None = None) -> None:
        """Waits until the bell has rung since the last time, or for so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._event.wait()
        self._event.clear()
        self._rung = False


class Writing:
    """One request. `has_left` is set by its client, `left`, `error` and `kept` by the loop."""

    def __init__(self, *, is_streamed: bool = False, keeps: bool = False) -> None:
        self.prompts: list[Prompt] = []
        self.unread: deque[Prompt] = deque()
        self.ready: deque[tuple[Row, State]] = deque()
        """The prompts that the loop has not read, and the rows that wait for room, with their states."""
        self.news, self.end = Bell(), Bell()
        """They ring at every new piece of a stream, and at the last one of any request."""
        self.is_streamed, self.keeps = is_streamed, keeps
        self.has_left = False
        self.left = 0
        """The rows that have not ended."""
        self.error: Exception | None = None
        self.kept: Kept | None = None
        """What a session goes on from."""

    def tell(self) -> None:
        """Something is new; called by the loop."""
        if self.is_streamed:
            self.news.ring()
        if not self.left or self.error is not None:
            self.end.ring()

    def add(self, prompt: Prompt) -> None:
        """One more prompt, with its rows."""
        self.prompts.append(prompt)
        self.unread.append(prompt)
        self.left += len(prompt.rows)


class Prompt:
    """Ids that are read from `state`, all but the last, which the first step reads.

    With `logprobs` the tokens of the prompt are looked at too: `looked` has one entry for each id but the first.
    """

    def __init__(
        self,
        writing: Writing,
        ids: NDArray[np.int64],
        rows: Sequence[Row],
        *,
        state: State = None,
        logprobs: int | None = None,
    ) -> None:
        self.writing, self.ids, self.rows, self.state, self.logprobs = writing, ids, rows, state, logprobs
        self.read = 0
        self.looked: list[Looked] = []

    @property
    def is_read(self) -> bool:
        """Whether only the last id is left."""
        return self.read >= len(self.ids) - 1

    def next_piece(self, size: int) -> NDArray[np.int64]:
        """The next ids to read."""
        start = self.read
        self.read = min(start + size, len(self.ids) - 1)
        return self.ids[start : self.read]
