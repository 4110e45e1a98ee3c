"""Long computations that end when nobody waits for them any more: their loops look up, whoever called them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import local


class Interrupted(Exception):
    """The computation was asked to end before its result."""


class _Asked(local):
    is_over: Callable[[], bool] | None = None


_asked = _Asked()


@contextmanager
def interruptible(is_over: Callable[[], bool]) -> Iterator[None]:
    """Inside of this block, in this thread, `check_interrupted` raises Interrupted once `is_over` says so."""
    before, _asked.is_over = _asked.is_over, is_over
    try:
        yield
    finally:
        _asked.is_over = before


def check_interrupted() -> None:
    """Called in every turn of a loop that may take long. Raises Interrupted if its result is not wanted any more."""
    if _asked.is_over is not None and _asked.is_over():
        raise Interrupted
