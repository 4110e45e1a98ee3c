"""Sessions: what a conversation goes on from, kept under a name between two requests."""

from __future__ import annotations

import time
from collections import OrderedDict

from ensue.serving.refusal import Refusal
from ensue.serving.row import SessionState


class Sessions:
    """The sessions of a model, in the thread of the event loop.

    A state is a value, so a request that fails or whose client leaves changes nothing: the session is as before.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self.most, self.seconds = most, seconds
        self._kept: OrderedDict[str, tuple[float, SessionState]] = OrderedDict()
        self._in_use: set[str] = set()

    def __len__(self) -> int:
        self._forget()
        return len(self._kept)

    def begin(self, name: str) -> SessionState | None:
        """The state of the session; None if it is new. Raises Refusal (409) while another request goes on with it.

        `end` has to follow.
        """
        if name in self._in_use:
            raise Refusal(409, "another request goes on with this session", param="session", code="session_in_use")
        self._forget()
        self._in_use.add(name)
        return self._kept[name][1] if name in self._kept else None

    def end(self, name: str, state: SessionState | None) -> None:
        """Keeps what the next request goes on from; None leaves it as it was."""
        self._in_use.discard(name)
        if state is not None:
            self._kept[name] = time.monotonic(), state
            self._kept.move_to_end(name)
        self._forget()

    def _forget(self) -> None:
        """The oldest go, beyond the number that is kept and after their time."""
        now = time.monotonic()
        while self._kept:
            name, (used, _) = next(iter(self._kept.items()))
            if len(self._kept) <= self.most and now - used < self.seconds:
                return
            del self._kept[name]
