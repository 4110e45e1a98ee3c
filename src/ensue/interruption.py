"""Cancellation of long computations, whose loops call `check_interrupted`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import local


class Interrupted(Exception):
    """A cancellation of the computation."""


_state = local()


@contextmanager
def interruptible(is_canceled: Callable[[], bool]) -> Iterator[None]:
    """Let `check_interrupted` raise Interrupted in this thread during a `with` block, once `is_canceled` is True."""
    before, _state.is_canceled = getattr(_state, "is_canceled", None), is_canceled
    try:
        yield
    finally:
        _state.is_canceled = before


def check_interrupted() -> None:
    """Raise Interrupted if the computation was canceled. Long loops call this function in each iteration."""
    is_canceled = getattr(_state, "is_canceled", None)
    if is_canceled is not None and is_canceled():
        raise Interrupted
