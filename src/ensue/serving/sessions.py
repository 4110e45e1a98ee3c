"""Sessions: the states that a conversation goes on from, kept under a name between two requests."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence

from ensue.serving.refusal import Refusal, wrong
from ensue.serving.row import SessionState
from ensue.types import leaves


class Sessions:
    """The sessions of a model, in the thread of the event loop.

    A state is a value, so a request that fails or whose client leaves changes nothing: the session is as before. To
    undo requests is to go on from a state before them. A session has the states after its latest `depth` + 1 requests.
    All sessions hold `max_bytes`; the latest state of the latest session stays, however large it is.
    """

    def __init__(self, most: int, seconds: float, depth: int, max_bytes: int) -> None:
        self.most, self.seconds, self.depth, self.max_bytes = most, seconds, depth, max_bytes
        self._kept: OrderedDict[str, tuple[float, list[SessionState | None]]] = OrderedDict()
        """When each was last used, and its states: None before the first request."""
        self._bytes: dict[str, int] = {}
        self._in_use: dict[str, list[SessionState | None]] = {}
        """The states up to that from which a request goes on. They stay while it does, even if the session goes."""

    def __len__(self) -> int:
        self._forget()
        return len(self._kept)

    def begin(self, name: str, undo: int = 0) -> SessionState | None:
        """The state of the session before its latest `undo` requests; None at its beginning.

        Raises Refusal (409) while another request goes on with it, and (400) if it has no state so far back. `end` has
        to follow if nothing is raised.
        """
        if name in self._in_use:
            raise Refusal(409, "another request goes on with this session", param="session", code="session_in_use")
        self._forget()
        _, states = self._kept.get(name, (0.0, [None]))
        if undo >= len(states):
            said = f"{undo}; the session has {len(states) - 1} requests that can be undone"
            raise wrong("undo", said, "cannot_undo")
        self._in_use[name] = states[: len(states) - undo]
        return states[-1 - undo]

    def end(self, name: str, state: SessionState | None) -> None:
        """Keeps the state that the next request goes on from; None leaves the session as it was."""
        before = self._in_use.pop(name)
        if state is not None:
            states = [*before, state][-self.depth - 1 :]
            while (size := num_bytes(states)) > self.max_bytes and len(states) > 1:
                del states[0]
            self._kept[name], self._bytes[name] = (time.monotonic(), states), size
            self._kept.move_to_end(name)
        self._forget()

    def _forget(self) -> None:
        """The oldest go, beyond the number and the bytes that are kept and after their time."""
        now = time.monotonic()
        while self._kept:
            name, (used, _) = next(iter(self._kept.items()))
            are_few = len(self._kept) <= self.most and sum(self._bytes.values()) <= self.max_bytes
            if now - used < self.seconds and (are_few or len(self._kept) == 1):
                return
            del self._kept[name], self._bytes[name]


def num_bytes(states: Sequence[SessionState | None]) -> int:
    """The memory of all states; what several have is counted once."""
    tensors = (tensor.untyped_storage() for one in states if one is not None for tensor in leaves(one.state))
    arrays = sum(one.ids.nbytes for one in states if one is not None)
    return arrays + sum({storage.data_ptr(): storage.nbytes() for storage in tensors}.values())
