"""A file that is mapped for reading. No page of it stays resident for long, so that memory does not grow with it."""

from __future__ import annotations

import mmap
import zlib
from array import array
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ensue.cache import used
from ensue.errors import DataError

RELEASE_BYTES = 16 << 20
FAULT_BYTES = 64 << 10  # a page fault maps the neighboring pages too, where the system has them in memory
PLACE_BYTES = 4 * FAULT_BYTES  # measured with Linux 6.18, which keeps files in large folios
BLOCK_BYTES = FAULT_BYTES
"""Bytes that share a checksum, so that checking reads hardly more than is mapped."""


class Checksums:
    """The CRC-32 of all that is written, and that of each block of a file, in which `before` bytes stand first."""

    def __init__(self, block_bytes: int = BLOCK_BYTES, before: int = 0) -> None:
        self.whole, self._blocks = 0, array("I")
        self._block_bytes = block_bytes
        self._block, self._room = 0, block_bytes - before
        """The checksum of the block that is not full, and how many bytes it still takes."""

    def add(self, data: bytes) -> None:
        """Takes the next bytes."""
        self.whole = zlib.crc32(data, self.whole)
        view = memoryview(data)
        while len(view) >= self._room:
            self._blocks.append(zlib.crc32(view[: self._room], self._block))
            view = view[self._room :]
            self._block, self._room = 0, self._block_bytes
        self._block, self._room = zlib.crc32(view, self._block), self._room - len(view)

    def of_blocks(self) -> bytes:
        """The checksums of all blocks that have bytes, or room for one at the end."""
        return np.array([*self._blocks, self._block], "<u4").tobytes()


class MappedFile:
    """The map of an open file. The name of a file in the cache says that it is in use."""

    def __init__(self, file: BinaryIO, path: Path | None = None) -> None:
        self.path, self._touched = path, 0
        self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_RANDOM"):
            self._mapping.madvise(mmap.MADV_RANDOM)
        self._checksums: NDArray[np.uint32] | None = None

    def array(self, dtype: str, count: int, offset: int = 0) -> NDArray[Any]:
        """Numbers of the file, which are read when somebody looks at them."""
        return np.frombuffer(self._mapping, dtype, count, offset=offset)

    def checked_by(self, checksums: NDArray[np.uint32], begin: int) -> None:
        """From here on `check` compares the blocks from `begin` on with these checksums, which stand behind them."""
        bytes = np.frombuffer(self._mapping, np.uint8)
        self._checksums, self._begin = checksums, begin
        self._end = checksums.ctypes.data - bytes.ctypes.data
        self._first = bytes.ctypes.data + begin
        self._seen = np.zeros(len(checksums), np.bool_)

    def check(self, array: NDArray[Any], places: NDArray[np.int64] | slice = slice(None)) -> None:
        """Compares each block of these places once. Raises DataError if one has changed, and removes the file."""
        if self._checksums is None or not array.size:
            return
        first, size = array.ctypes.data - self._first, array.strides[0]
        if isinstance(places, slice):
            start, stop, _ = places.indices(len(array))
            blocks = np.arange((first + start * size) // BLOCK_BYTES, -(-(first + stop * size) // BLOCK_BYTES))
        else:
            begins = first + places * size
            blocks = np.concatenate((begins // BLOCK_BYTES, (begins + size - 1) // BLOCK_BYTES), axis=None)
        for block in np.unique(blocks[~self._seen[blocks]]).tolist():
            start = self._begin + block * BLOCK_BYTES
            stop = min(start + BLOCK_BYTES, self._end)
            if zlib.crc32(self._mapping[start:stop]) != self._checksums[block]:
                if self.path is not None:
                    with suppress(OSError):
                        self.path.unlink()
                damage = f"damaged: bytes {start:,} to {stop:,} have changed"
                raise DataError(f"{damage}; it is removed, and the same command makes it anew", self.path)
            self._seen[block] = True
            self.touched(stop - start)

    def __getitem__(self, part: slice) -> bytes:
        return self._mapping[part]

    def touched(self, read_bytes: int, places: int = 1) -> None:
        """Hears how much was read at how many places. Pages are given back before many are mapped."""
        self._touched += read_bytes + PLACE_BYTES * places
        if self._touched >= RELEASE_BYTES:
            self.release()

    def release(self) -> None:
        """Gives all pages back, and marks the file as used."""
        self._touched = 0
        if self.path is not None:
            used(self.path)
        if hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED)
