"""A thread that computes for requests, text by text: each has its turn, and may be given up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

from ensue.extensions.serving.limits import DENSE_SECONDS, LONG_SECONDS, SLICE_SECONDS
from ensue.interruption import Interrupted, interruptible

Held = Callable[[], AbstractContextManager[None]]


class Traffic:
    """Whether others wait: work that takes long makes way for what takes little while requests come."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def came(self) -> None:
        """A request has come."""
        self._last = time.monotonic()

    @property
    def is_dense(self) -> bool:
        """Whether a request came within `DENSE_SECONDS`."""
        return time.monotonic() - self._last < DENSE_SECONDS


class Job:
    """`count` pieces of work, each done within `held()`, and their results so far.

    It is over when `future` is: with the results, or cancelled.
    """

    def __init__(self, works: Iterator[Any], count: int, held: Held) -> None:
        self.works, self.count, self.held, self.results = works, count, held, list[Any]()
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
    """A thread that does one piece of each request in turn. A piece does not depend on what waits beside it.

    Requests that have had `LONG_SECONDS` go on in another worker, `long`, so that they do not hold up short ones. That
    has the `traffic`: while it is dense, it rests three times as long as it works, also within a piece, where this
    looks up. So what it does takes little from whatever runs beside it.
    """

    def __init__(
        self, name: str, held: Held = nullcontext, *, long: Worker | None = None, traffic: Traffic | None = None
    ) -> None:
        self._held, self._long, self._traffic = held, long, traffic
        self._since = 0.0
        """When it began to work, or last had a rest."""
        self._waiting: SimpleQueue[Job | None] = SimpleQueue()
        self._has_ended = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def computed(self, works: Iterator[Any], count: int, *, is_long: bool = False) -> list[Any]:
        """The results of `count` works, each done in its turn. `is_long` says that they are known to take long.

        If this is cancelled, nothing more is begun, and what is being done ends where it looks up
        (`ensue.interruption`).
        """
        if not count:
            return []
        job = Job(works, count, self._held)
        self._put(job, is_long=is_long)
        return await job.future

    def close(self) -> None:
        """Ends the thread after the piece that it does now; the rest is dropped."""
        self._has_ended = True
        self._waiting.put(None)
        self._thread.join()

    def _put(self, job: Job, *, is_long: bool) -> None:
        (self._long if is_long and self._long is not None else self)._waiting.put(job)

    def _run(self) -> None:
        while (job := self._waiting.get()) is not None and not self._has_ended:
            if not job.future.done():
                self._do_one(job)
                self._rest()

    def _do_one(self, job: Job) -> None:
        begin = self._since = time.monotonic()
        try:
            with job.held(), interruptible(partial(self._is_over, job)):
                job.results.append(next(job.works))
        except Interrupted:
            return
        except BaseException as error:  # it belongs to the request
            job.tell(error)
            return
        job.seconds += time.monotonic() - begin
        if len(job.results) == job.count:
            job.tell(None)
        else:
            self._put(job, is_long=job.seconds > LONG_SECONDS)

    def _is_over(self, job: Job) -> bool:
        if time.monotonic() - self._since > SLICE_SECONDS:
            self._rest()
        return job.future.done()

    def _rest(self) -> None:
        if self._traffic is not None and self._traffic.is_dense:
            time.sleep(3 * (time.monotonic() - self._since))
        self._since = time.monotonic()
