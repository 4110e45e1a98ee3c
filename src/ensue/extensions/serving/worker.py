"""A worker thread that computes the items of requests in round-robin order, with cancellation."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

from ensue.extensions.serving.limits import MIN_LONG_SECONDS, RECENT_SECONDS, SLICE_SECONDS
from ensue.interruption import Interrupted, interruptible

JobContext = Callable[[], AbstractContextManager[None]]


class Traffic:
    """The time of the latest request. Long jobs are throttled for some time after each request."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def record_request(self) -> None:
        self._last = time.monotonic()

    @property
    def is_busy(self) -> bool:
        return time.monotonic() - self._last < RECENT_SECONDS


class Job:
    """The `count` items of a request, and their results. Each item is computed within the context manager `context()`.

    `future` is done when all items are computed, after an error, or when the request is canceled.
    """

    def __init__(self, items: Iterator[Any], count: int, context: JobContext) -> None:
        self.items, self.count, self.context, self.results = items, count, context, list[Any]()
        self.seconds = 0.0
        self.future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    def complete(self, error: BaseException | None) -> None:
        """Complete the future. Only the thread of the worker calls this method."""
        with suppress(RuntimeError):  # the event loop has ended
            self.future.get_loop().call_soon_threadsafe(self._complete, error)

    def _complete(self, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(self.results)
        else:
            self.future.set_exception(error)


class Worker:
    """A thread that computes one item of each request in turn. The result of an item does not depend on other requests.

    After MIN_LONG_SECONDS of computation, a request moves to the worker `long`, so that it does not delay short
    requests. While requests arrive, a worker with `traffic` sleeps three times as long as it computes; within an item,
    it sleeps when the item calls `check_interrupted`.
    """

    def __init__(
        self, name: str, context: JobContext = nullcontext, *, long: "Worker | None" = None,
        traffic: Traffic | None = None,
    ) -> None:  # fmt: skip
        self._context, self._long, self._traffic = context, long, traffic
        self._slice_start = 0.0
        """The start of the current slice of computation."""
        self._waiting: SimpleQueue[Job | None] = SimpleQueue()
        self._has_ended = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def compute(self, items: Iterator[Any], count: int, *, is_long: bool = False) -> list[Any]:
        """Return the results of `count` items. With `is_long`, the worker of long requests computes them.

        After a cancellation, no further item starts, and the running item stops at its next `check_interrupted`.
        """
        if not count:
            return []
        job = Job(items, count, self._context)
        self._put(job, is_long=is_long)
        return await job.future

    def close(self) -> None:
        """End the thread after the current item, and drop all further items."""
        self._has_ended = True
        self._waiting.put(None)
        self._thread.join()

    def _put(self, job: Job, *, is_long: bool) -> None:
        (self._long if is_long and self._long is not None else self)._waiting.put(job)

    def _run(self) -> None:
        while (job := self._waiting.get()) is not None and not self._has_ended:
            if not job.future.done():
                self._run_item(job)
                self._throttle()

    def _run_item(self, job: Job) -> None:
        begin = self._slice_start = time.monotonic()
        try:
            with job.context(), interruptible(partial(self._is_interrupted, job)):
                job.results.append(next(job.items))
        except Interrupted:
            return
        except BaseException as error:  # reported to the request
            job.complete(error)
            return
        job.seconds += time.monotonic() - begin
        if len(job.results) == job.count:
            job.complete(None)
        else:
            self._put(job, is_long=job.seconds > MIN_LONG_SECONDS)

    def _is_interrupted(self, job: Job) -> bool:
        if time.monotonic() - self._slice_start > SLICE_SECONDS:
            self._throttle()
        return job.future.done()

    def _throttle(self) -> None:
        if self._traffic is not None and self._traffic.is_busy:
            time.sleep(3 * (time.monotonic() - self._slice_start))
        self._slice_start = time.monotonic()
