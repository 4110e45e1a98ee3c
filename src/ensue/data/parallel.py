"""Pieces of data, worked on by several processes, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from multiprocessing import get_context
from typing import Any, TypeVar

from ensue.errors import EnsueError

Item = TypeVar("Item")
Result = TypeVar("Result")
AHEAD = 3
"""The pieces that wait for each process. More would only take memory."""
_processes: ContextVar[int] = ContextVar("processes", default=1)
_works: list[Callable[[Any], Any]] = []
"""The function of this process."""


@contextmanager
def working(processes: int) -> Iterator[None]:
    """A `with` block in which `in_order` takes so many processes."""
    token = _processes.set(processes)
    try:
        yield
    finally:
        _processes.reset(token)


def in_order(work: Callable[[Item], Result], items: Iterable[Item], processes: int = 0) -> Iterator[Result]:
    """Works like `map`; with several processes some items are read ahead. Raises EnsueError if a process is killed."""
    processes = processes or _processes.get()
    if processes == 1:
        yield from map(work, items)
        return
    waiting: deque[Future[Result]] = deque()
    try:
        with ProcessPoolExecutor(processes, get_context("spawn"), _begin, (work,)) as pool:
            for item in items:
                waiting.append(pool.submit(_work, item))
                if len(waiting) > AHEAD * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    except BrokenProcessPool:
        raise EnsueError("a process that makes ids was killed; the same command goes on with --processes 1") from None


def batched(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    """The items in lists of `most`. Those before one that cannot be read come before its error."""
    batch: list[Item] = []
    try:
        for item in items:
            batch.append(item)
            if len(batch) == most:
                yield batch
                batch = []
    except EnsueError:
        yield batch
        raise
    if batch:
        yield batch


def _begin(work: Callable[[Any], Any]) -> None:
    _works[:] = [work]


def _work(item: Any) -> Any:
    return _works[0](item)
