"""The processor time of the callbacks of an event loop."""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from extensions.serving.client import Answer

MAX_CALLBACK_SECONDS = 0.02
"""The maximum seconds of processor time of a callback."""


@contextmanager
def watched() -> Iterator[list[tuple[float, str]]]:
    """Record the callbacks of all event loops in the `with` block: their seconds of processor time and their names."""
    callbacks: list[tuple[float, str]] = []
    run = asyncio.Handle._run  # type: ignore[attr-defined]

    def watched_run(handle: asyncio.Handle) -> None:
        start = time.thread_time()
        run(handle)
        callbacks.append((time.thread_time() - start, repr(handle)[:300]))

    gc.freeze()  # as the server does after loading its models
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", watched_run)
        yield callbacks


def longest_callback(ask: Callable[[], Answer], statuses: Sequence[int], max_seconds: float) -> tuple[float, str]:
    """Return the longest callback while `ask` is answered with one of these statuses.

    `ask` is called up to three times, until no callback takes `max_seconds`, since other programs on the same core and
    first calls make callbacks slower.
    """
    for _ in range(3):
        with watched() as callbacks:
            answer = ask()
        assert answer.status in statuses, answer.body[:300]
        if max(callbacks)[0] < max_seconds:
            break
    return max(callbacks)
