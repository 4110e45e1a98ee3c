"""The ids of pieces of a text, worked out by several processes, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from ensue.data.corpus.cache import TextToIds
from ensue.errors import EnsueError

AHEAD = 3
"""The pieces that wait for each process. More would only take memory."""
_reads: list[TextToIds] = []
"""The reader with which this process makes ids of its pieces."""


def encoded(reads: TextToIds, pieces: Iterable[str], processes: int) -> Iterator[Any]:
    """The ids of each piece; with several processes some pieces are read ahead. Raises EnsueError if one is killed."""
    if processes == 1:
        yield from map(reads.encode, pieces)
        return
    waiting: deque[Future[Any]] = deque()
    try:
        with ProcessPoolExecutor(processes, get_context("spawn"), _begin, (reads,)) as pool:
            for piece in pieces:
                waiting.append(pool.submit(_encode, piece))
                if len(waiting) > AHEAD * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    except BrokenProcessPool:
        raise EnsueError("a process that makes ids was killed; the same command goes on with --processes 1") from None


def _begin(reads: TextToIds) -> None:
    _reads[:] = [reads]


def _encode(piece: str) -> Any:
    return _reads[0].encode(piece)
