"""Memory in huge pages for arrays of all positions, kept for the next pass when one is done (Linux).

Memory that is new to a process comes from the system as it is touched: in pages of 4 KB that takes a twentieth of a
training step. Pages of 2 MB come faster, but beside arrays in small ones the system has to move those together first,
for up to a quarter of a step (LOG.md). So blocks are lent again instead of given back.
"""

from __future__ import annotations

import mmap
import weakref
from collections import deque
from contextlib import suppress
from threading import Lock

IS_SUPPORTED = hasattr(mmap, "MADV_HUGEPAGE") and hasattr(mmap, "MADV_FREE")
HUGE_PAGE = 2 << 20
SLACK = 1.5
"""How many times larger than what is asked for a block may be."""


class HugePages:
    """Blocks of memory that are lent. Those lent and those waiting are never more than were lent at once before.

    Where memory is short, the system may take back the pages of blocks that wait. Threads may share this.
    """

    def __init__(self) -> None:
        self._waiting: list[mmap.mmap] = []  # the one that has waited longest comes first
        self._returned: deque[mmap.mmap] = deque()  # by finalizers: they run at any moment, and so only append
        self._lent = self._most_lent = 0  # bytes
        self._lock = Lock()

    def borrow(self, size: int) -> memoryview:
        """`size` bytes or more, of any content, until nothing refers to them any more, tensors made of them included.

        Raises:
            OSError: there is no such memory.
        """
        with self._lock:
            self._take_back()
            block = self._fitting(size) or self._mapped(size)
            self._lent += len(block)
            self._most_lent = max(self._most_lent, self._lent)
        view = memoryview(block)
        weakref.finalize(view, self._return, block).atexit = False
        return view

    def held(self) -> tuple[int, int]:
        """Bytes that are lent, and bytes that wait."""
        with self._lock:
            self._take_back()
            return self._lent, sum(map(len, self._waiting))

    def _return(self, block: mmap.mmap) -> None:
        with suppress(OSError):  # an older kernel
            block.madvise(mmap.MADV_FREE)
        self._returned.append(block)

    def _take_back(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self._waiting.append(block)
            self._lent -= len(block)

    def _fitting(self, size: int) -> mmap.mmap | None:
        block = min((b for b in self._waiting if size <= len(b) <= SLACK * size), key=len, default=None)
        if block is not None:
            self._waiting.remove(block)
        return block

    def _mapped(self, size: int) -> mmap.mmap:
        size = -(-size // HUGE_PAGE) * HUGE_PAGE
        most = max(self._most_lent, self._lent + size)
        while self._lent + size + sum(map(len, self._waiting)) > most:
            del self._waiting[0]
        try:
            block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:
            self._waiting.clear()  # what is asked for next may fit then
            raise
        with suppress(OSError):  # a kernel without huge pages
            block.madvise(mmap.MADV_HUGEPAGE)
        return block


SHARED = HugePages()
"""Of the process."""
