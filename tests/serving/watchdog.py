"""How long an event loop is held up."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def watched() -> Iterator[list[tuple[float, str]]]:
    """The callbacks of every event loop inside of this block: their seconds of processor time, and what they were.

    Processor time does not depend on what else the machine does.
    """
    found: list[tuple[float, str]] = []
    run = asyncio.Handle._run  # type: ignore[attr-defined]

    def watched_run(handle: asyncio.Handle) -> None:
        start = time.thread_time()
        run(handle)
        found.append((time.thread_time() - start, repr(handle)[:300]))

    gc.freeze()  # as the server does when its models are loaded
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", watched_run)
            yield found
    finally:
        gc.unfreeze()
