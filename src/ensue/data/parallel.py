"""Ordered map over chunks of data in several processes."""

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
MAX_QUEUED = 3
"""The maximum number of submitted items per process."""
_processes: ContextVar[int] = ContextVar("processes", default=1)
_functions: list[Callable[[Any], Any]] = []
"""The function that a worker process calls, as the only element."""


@contextmanager
def use_processes(processes: int) -> Iterator[None]:
    """Set the default number of processes of `ordered_map` within a `with` block."""
    token = _processes.set(processes)
    try:
        yield
    finally:
        _processes.reset(token)


def ordered_map(work: Callable[[Item], Result], items: Iterable[Item], processes: int = 0) -> Iterator[Result]:
    """Yield the results of `map(work, items)`, computed by several processes.

    Items are consumed ahead of the results. Raises EnsueError if a process is killed.
    """
    processes = processes or _processes.get()
    if processes == 1:
        yield from map(work, items)
        return
    queue: deque[Future[Result]] = deque()
    try:
        with ProcessPoolExecutor(processes, get_context("spawn"), _set_function, (work,)) as pool:
            for item in items:
                queue.append(pool.submit(_call_function, item))
                if len(queue) > MAX_QUEUED * processes:
                    yield queue.popleft().result()
            while queue:
                yield queue.popleft().result()
    except BrokenProcessPool:
        raise EnsueError("a process was killed; repeat the command with --processes 1") from None


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `size`. If `items` raises EnsueError, the items before it are yielded first."""
    batch: list[Item] = []
    try:
        for item in items:
            batch.append(item)
            if len(batch) == size:
                yield batch
                batch = []
    except EnsueError:
        yield from [batch] if batch else []
        raise
    if batch:
        yield batch


def _set_function(work: Callable[[Any], Any]) -> None:
    _functions[:] = [work]


def _call_function(item: Any) -> Any:
    return _functions[0](item)


def join_blocks(strings: Iterable[str], size: int) -> Iterator[str]:
    """Concatenate strings into blocks. A block ends as soon as it has more than `size` characters."""
    block: list[str] = []
    count = 0
    for string in strings:
        block.append(string)
        count += len(string)
        if count > size:
            yield "".join(block)
            block, count = [], 0
    yield "".join(block)
