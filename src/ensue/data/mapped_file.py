"""A file that is mapped for reading. No page of it stays resident for long, so that memory does not grow with it."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ensue.cache import used

RELEASE_BYTES = 16 << 20
FAULT_BYTES = 64 << 10  # a page fault maps the neighboring pages too, where the system has them in memory


class MappedFile:
    """The map of an open file. The name of a file in the cache says that it is in use."""

    def __init__(self, file: BinaryIO, path: Path | None = None) -> None:
        self.path, self._touched = path, 0
        self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_RANDOM"):
            self._mapping.madvise(mmap.MADV_RANDOM)

    def array(self, dtype: str, count: int, offset: int = 0) -> NDArray[Any]:
        """Numbers of the file, which are read when somebody looks at them."""
        return np.frombuffer(self._mapping, dtype, count, offset=offset)

    def __getitem__(self, part: slice) -> bytes:
        return self._mapping[part]

    def touched(self, read_bytes: int, places: int = 1) -> None:
        """Hears how much was read at how many places. Pages are given back before many are mapped."""
        self._touched += read_bytes + 2 * FAULT_BYTES * places
        if self._touched >= RELEASE_BYTES:
            self.release()

    def release(self) -> None:
        """Gives all pages back, and marks the file as used."""
        self._touched = 0
        if self.path is not None:
            used(self.path)
        if hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED)
