"""What computes at a stroke for requests: one thing after another, what is quick at once and the rest in a thread."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

from ensue.engine import HeldWeights

TOGETHER = 0.005
"""A thread tells of results when nothing waits, and after so many seconds: each time it wakes the event loop."""
SMALL, QUICK, LAST = 512, 0.01, 8
"""Work on so few characters is done in the event loop, if the last `LAST` of the kind took less than `QUICK` seconds of
processor time each: to hand it to a thread would take about as long.
"""

Work = Callable[[], Any]


class Worker:
    """What it computes does not depend on what waits beside it. Its model's weights stay as they are."""

    def __init__(self, name: str, weights: HeldWeights) -> None:
        self.weights = weights
        self._new: SimpleQueue[tuple[Work, asyncio.Future[Any]] | None] = SimpleQueue()
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._open = 0
        """What the thread has been given and has not told of."""
        self._last: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LAST))
        self._has_ended = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def is_quick(self, kind: str, characters: int) -> bool:
        """Whether work of this kind on so many characters is to be done with `at_once`."""
        return characters <= SMALL and not self._open and 0 < max(self._last[kind], default=0.0) < QUICK

    def at_once(self, work: Work, kind: str, characters: int) -> Any:
        """What `work` returns or raises."""
        start = time.thread_time()
        with self.weights.used():
            result = work()
        if characters <= SMALL:
            self._last[kind].append(time.thread_time() - start)
        return result

    async def computed(self, work: Work, kind: str, characters: int) -> Any:
        """What `work` returns or raises, in its turn. If this is cancelled before, `work` is not called."""
        future = asyncio.get_running_loop().create_future()
        self._open += 1
        self._new.put((partial(self.at_once, work, kind, characters), future))
        return await future

    def close(self) -> None:
        """Ends the thread after what it computes now; the rest is dropped."""
        self._has_ended = True
        self._new.put(None)
        self._thread.join()

    def _run(self) -> None:
        told = 0.0
        while (given := self._new.get()) is not None and not self._has_ended:
            work, future = given
            result, failure = None, None
            if not future.cancelled():
                try:
                    result = work()
                except BaseException as error:  # it belongs to the request
                    failure = error
            self._done.append((future, result, failure))
            if self._new.empty() or time.monotonic() - told > TOGETHER:
                told = time.monotonic()
                with suppress(RuntimeError):  # the event loop has ended
                    future.get_loop().call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        while self._done:
            future, result, failure = self._done.popleft()
            self._open -= 1
            if future.done():
                continue
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)
