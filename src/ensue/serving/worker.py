"""A thread that computes for requests, text by text: each has its turn, a long one seldom, and may be given up."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from ensue.interruption import Interrupted, interruptible
from ensue.serving.admission import Traffic
from ensue.serving.limits import LONG_SECONDS


class Job:
    """`count` pieces of work, and their results so far. It is over when `future` is: with the results, or cancelled."""

    def __init__(self, works: Iterator[Any], count: int) -> None:
        self.works, self.count, self.results = works, count, list[Any]()
        self.seconds = 0.0
        self.future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    def tell(self, error: BaseException | None) -> None:
        """Ends the request's waiting; called by the thread."""
        with suppress(RuntimeError):  # the event loop has ended
            self.future.get_loop().call_soon_threadsafe(self._tell, error)

    def _tell(self, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(self.results)
        else:
            self.future.set_exception(error)


class Worker:
    """A thread that does one piece of each request in turn, so that a long request does not hold up a short one.

    While `traffic` is dense, those that have had `LONG_SECONDS` rest after each of their pieces, three times as long.
    A piece does not depend on what waits beside it. It is done within `held()`.
    """

    def __init__(
        self, name: str, traffic: Traffic, held: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        self._traffic, self._held = traffic, held
        self._long: deque[Job] = deque()
        self._long_from = 0.0
        self._waiting: SimpleQueue[Job | None] = SimpleQueue()
        self._has_ended = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def computed(self, works: Iterator[Any], count: int) -> list[Any]:
        """The results of `count` works, each done in its turn.

        If this is cancelled, nothing more is begun, and what is being done ends where it looks up
        (`ensue.interruption`).
        """
        if not count:
            return []
        job = Job(works, count)
        self._waiting.put(job)
        return await job.future

    def close(self) -> None:
        """Ends the thread after the piece that it does now; the rest is dropped."""
        self._has_ended = True
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._next()) is not None and not self._has_ended:
            if not job.future.done():
                self._do_one(job)

    def _next(self) -> Job | None:
        """The next job whose turn it is: a long one when they have rested, or the next in the queue."""
        left = self._long_from - time.monotonic() if self._long else None
        if left is None or left > 0:
            with suppress(Empty):
                return self._waiting.get(timeout=left)
        return self._long.popleft()

    def _do_one(self, job: Job) -> None:
        begin = time.monotonic()
        try:
            with self._held(), interruptible(job.future.done):
                job.results.append(next(job.works))
        except Interrupted:
            return
        except BaseException as error:  # it belongs to the request
            job.tell(error)
            return
        end = time.monotonic()
        job.seconds += end - begin
        if len(job.results) == job.count:
            job.tell(None)
        elif job.seconds > LONG_SECONDS and self._traffic.is_dense:
            self._long.append(job)
            self._long_from = end + 3 * (end - begin)
        else:
            self._waiting.put(job)
