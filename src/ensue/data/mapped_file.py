"""Memory-mapped files with checksums, and files of token ids.

Pages of a mapped file are released soon after reading, so that memory does not grow with the file. A file of ids has a
header, the ids, and a CRC-32 of each page of ids; files of earlier versions have no checksums.
"""

import mmap
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ensue.cache import mark_used
from ensue.errors import DataError

RELEASE_BYTES = 16 << 20
"""Pages are released after this number of bytes is estimated to be mapped."""
FAULT_BYTES = 64 << 10
"""The number of bytes that a page fault maps, since the kernel also maps neighboring pages that are in memory."""
RANDOM_ACCESS_BYTES = 4 * FAULT_BYTES
"""The number of bytes that a random access maps, measured with Linux 6.18, which caches large folios."""
BLOCK_BYTES = FAULT_BYTES
"""The number of bytes of a checksummed block. A page fault maps a block, so verifying it reads few other bytes."""

NUM_PASSAGES, PASSAGE_TOKENS, MAX_SEARCHED_TOKENS = 16, 50, 1 << 26
"""The number and length of the passages that `TokenFile.num_shared` searches for, and the number of ids it searches."""


class Checksums:
    """The CRC-32 of all added bytes, and of each block. The first block has `before` bytes that are not added."""

    def __init__(self, block_bytes: int = BLOCK_BYTES, before: int = 0) -> None:
        self.total, self._blocks = 0, array("I")
        self._block_bytes = block_bytes
        self._block, self._remaining = 0, block_bytes - before
        """The checksum of the incomplete block, and the number of bytes until its end."""

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self.total = zlib.crc32(data, self.total)
        view = memoryview(data)
        while len(view) >= self._remaining:
            self._blocks.append(zlib.crc32(view[: self._remaining], self._block))
            view = view[self._remaining :]
            self._block, self._remaining = 0, self._block_bytes
        self._block, self._remaining = zlib.crc32(view, self._block), self._remaining - len(view)

    def of_blocks(self) -> bytes:
        """Return the checksums of all blocks, including the last, incomplete one."""
        return np.array([*self._blocks, self._block], "<u4").tobytes()


class MappedFile:
    """A memory map of an open file. If its `path` is passed, `release` marks the file as used."""

    def __init__(self, file: BinaryIO, path: Path | None = None) -> None:
        self.path, self._touched = path, 0
        self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_RANDOM"):
            self._mapping.madvise(mmap.MADV_RANDOM)
        self._checksums: NDArray[np.uint32] | None = None

    def array(self, dtype: str, count: int, offset: int = 0) -> NDArray[Any]:
        """Return a view of numbers in the file, which are read on access."""
        return np.frombuffer(self._mapping, dtype, count, offset=offset)

    def set_checksums(self, checksums: NDArray[np.uint32], begin: int) -> None:
        """Set the checksums for `check`. The checksummed blocks are the bytes from `begin` to the checksums."""
        bytes = np.frombuffer(self._mapping, np.uint8)
        self._checksums, self._begin = checksums, begin
        self._end = checksums.ctypes.data - bytes.ctypes.data
        self._begin_address = bytes.ctypes.data + begin
        self._verified = np.zeros(len(checksums), np.bool_)

    def check(self, array: NDArray[Any], indices: NDArray[np.int64] | slice = slice(None)) -> None:
        """Verify the blocks of the numbers at `indices` that are not verified yet.

        If a block has changed, the file at `path` is removed and DataError is raised.
        """
        if self._checksums is None or not array.size:
            return
        first, size = array.ctypes.data - self._begin_address, array.strides[0]
        if isinstance(indices, slice):
            start, stop, _ = indices.indices(len(array))
            blocks = np.arange((first + start * size) // BLOCK_BYTES, -(-(first + stop * size) // BLOCK_BYTES))
        else:
            begins = first + indices * size
            blocks = np.concatenate((begins // BLOCK_BYTES, (begins + size - 1) // BLOCK_BYTES), axis=None)
        for block in np.unique(blocks[~self._verified[blocks]]).tolist():
            start = self._begin + block * BLOCK_BYTES
            stop = min(start + BLOCK_BYTES, self._end)
            if zlib.crc32(self._mapping[start:stop]) != self._checksums[block]:
                if self.path is not None:
                    with suppress(OSError):
                        self.path.unlink()
                damage = f"damaged: bytes {start:,} to {stop:,} have changed"
                raise DataError(f"{damage}; the file was removed, and the same command recreates it", self.path)
            self._verified[block] = True
            self.count_read(stop - start)

    def __getitem__(self, bounds: slice) -> bytes:
        return self._mapping[bounds]

    def count_read(self, read_bytes: int, num_accesses: int = 1) -> None:
        """Count the bytes and the random accesses of a read, and release all pages after `RELEASE_BYTES`."""
        self._touched += read_bytes + RANDOM_ACCESS_BYTES * num_accesses
        if self._touched >= RELEASE_BYTES:
            self.release()

    def release(self) -> None:
        """Release all pages, and mark the file at `path` as used."""
        self._touched = 0
        if self.path is not None:
            mark_used(self.path)
        if hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED)


_HEADER = struct.Struct("<8sIIQQQ")
"""Magic bytes, bytes per id, CRC-32 of the ids, and the numbers of ids, unknown ids and characters."""
_MAGIC = b"ensueids"
_READ_BYTES = 1 << 20
_PAGE_BYTES = 1 << 12
"""The number of bytes of a checksummed page. Reading an id maps its page, so verification reads no other pages."""


class TokenFile:
    """A sequence of ids in an array or in a mapped file (`open`), which is read in slices.

    `unknown` is the number of unknown ids, and `characters` is the length of the text.
    """

    def __init__(
        self, ids: NDArray[Any], *, unknown: int = 0, characters: int = 0, file: MappedFile | None = None,
        checksums: NDArray[np.uint32] | None = None,
    ) -> None:  # fmt: skip
        self.unknown, self.characters = unknown, characters
        self._ids, self._file, self._checksums = ids, file, checksums

    @classmethod
    def open(cls, path: Path, *, checks: bool = False) -> Self:
        """Map a file of ids. With `checks`, `read` verifies pages and raises DataError for a changed page.

        Raises DataError for a truncated file and for a file of another format, and OSError for an unreadable file.
        """
        header = header_of(path)
        with path.open("rb") as file:
            if (size := file.seek(0, 2)) not in header.sizes:
                raise DataError("the file of ids is truncated", path)
            mapped = MappedFile(file, path)
        ids = mapped.array(f"<u{header.id_bytes}", header.tokens, _HEADER.size)
        checksums = None
        if checks and size > header.file_bytes:
            checksums = mapped.array("<u4", header.pages, header.file_bytes)
        return cls(ids, unknown=header.unknown, characters=header.characters, file=mapped, checksums=checksums)

    def reversed(self) -> "TokenFile":
        """Return the ids in reverse order."""
        return TokenFile(self._ids[::-1], unknown=self.unknown, characters=self.characters, file=self._file)

    def __len__(self) -> int:
        return len(self._ids)

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return a copy of the ids [start, stop)."""
        assert 0 <= start <= stop <= len(self), f"[{start}, {stop}) of {len(self)} ids"
        if self._checksums is not None:
            self._check(start, stop)
        ids = self._ids[start:stop].astype(np.int64)
        if self._file is not None:
            self._file.count_read((stop - start) * self._ids.itemsize)
        return ids

    def blocks(self, size: int = 1 << 20) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield all ids in blocks, each with the position of its first id."""
        for start in range(0, len(self), size):
            yield start, self.read(start, min(start + size, len(self)))

    def num_shared(self, other: "TokenFile") -> int:
        """Return how many of `NUM_PASSAGES` passages of another text are in the first `MAX_SEARCHED_TOKENS` ids."""
        last, dtype, step = len(other) - PASSAGE_TOKENS, self._ids.dtype, 1 << 20
        starts = range(0, last + 1, max(1, last // (NUM_PASSAGES - 1)))[:NUM_PASSAGES]
        passages = [other.read(start, start + PASSAGE_TOKENS).astype(dtype).tobytes() for start in starts]
        missing = {*passages}
        for start in range(0, min(len(self), MAX_SEARCHED_TOKENS), step):
            chunk = self.read(start, min(start + step + PASSAGE_TOKENS, len(self))).astype(dtype).tobytes()
            missing = {passage for passage in missing if passage not in chunk}
        return sum(passage not in missing for passage in passages)

    def read_rows(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """Return a copy of the ids [start, start + length) of each start, (rows, length)."""
        assert len(starts) == 0 or (starts.min() >= 0 and starts.max() + length <= len(self)), "beyond the ids"
        ids: NDArray[np.int64] = self._ids[starts[:, None] + np.arange(length)].astype(np.int64)
        if self._file is not None:
            self._file.count_read(ids.size * self._ids.itemsize, 1 + len(starts))
        return ids

    def _check(self, start: int, stop: int) -> None:
        assert self._file is not None
        assert self._checksums is not None
        size, end = self._ids.itemsize, _HEADER.size + self._ids.nbytes
        first, last = (_HEADER.size + index * size for index in (start, stop))
        for page in range(first // _PAGE_BYTES, -(-last // _PAGE_BYTES)):
            data = self._file[max(page * _PAGE_BYTES, _HEADER.size) : min((page + 1) * _PAGE_BYTES, end)]
            if zlib.crc32(data) != self._checksums[page]:
                damage = f"damaged: bytes {page * _PAGE_BYTES:,} to {(page + 1) * _PAGE_BYTES:,} have changed"
                raise DataError(damage, self._file.path)

    def release(self) -> None:
        if self._file is not None:
            self._file.release()

    def __repr__(self) -> str:
        return f"TokenFile({len(self):,} ids, {self.unknown:,} unknown, {self.characters:,} characters)"


def write_tokens(
    path: Path, chunks: Iterable[tuple[NDArray[Any], int]], *, vocabulary_size: int, unknown_id: int | None
) -> None:
    """Write the ids of chunks with the fewest bytes per id. A chunk has ids and their number of characters."""
    size = 1 if vocabulary_size <= 1 << 8 else 2 if vocabulary_size <= 1 << 16 else 4
    sums = Checksums(_PAGE_BYTES, _HEADER.size)
    count = unknown = characters = 0
    with path.open("wb") as file:
        file.write(bytes(_HEADER.size))
        for ids, chunk_characters in chunks:
            data = ids.astype(f"<u{size}").tobytes()
            file.write(data)
            sums.add(data)
            count += len(ids)
            unknown += 0 if unknown_id is None else int(np.count_nonzero(ids == unknown_id))
            characters += chunk_characters
        file.write(sums.of_blocks())
        file.seek(0)
        file.write(_HEADER.pack(_MAGIC, size, sums.total, count, unknown, characters))


def check_tokens(path: Path) -> None:
    """Verify a file of ids. Raises DataError if the ids or their checksums have changed."""
    sums = Checksums(_PAGE_BYTES, _HEADER.size)
    header = header_of(path)
    remaining = header.file_bytes - _HEADER.size
    with path.open("rb") as file:
        file.seek(_HEADER.size)
        while remaining and (block := file.read(min(_READ_BYTES, remaining))):
            sums.add(block)
            remaining -= len(block)
        after = file.read(4 * header.pages + 1)
    if remaining or sums.total != header.crc or after not in (b"", sums.of_blocks()):
        raise DataError("the ids are damaged", path)


class TokenHeader(NamedTuple):
    """The header of a file of ids; `crc` is the CRC-32 of the ids."""

    id_bytes: int
    crc: int
    tokens: int
    unknown: int
    characters: int

    @property
    def file_bytes(self) -> int:
        """The size of the file in bytes, without checksums of pages."""
        return _HEADER.size + self.tokens * self.id_bytes

    @property
    def pages(self) -> int:
        """The number of checksums after the ids."""
        return self.file_bytes // _PAGE_BYTES + 1

    @property
    def sizes(self) -> tuple[int, int]:
        """The possible sizes of the file in bytes: without and with checksums of pages."""
        return self.file_bytes, self.file_bytes + 4 * self.pages


def header_of(path: Path) -> TokenHeader:
    """Return the header of a file of ids. Raises DataError for another format, and OSError for an unreadable file."""
    with path.open("rb") as file:
        data = file.read(_HEADER.size)
    if len(data) == _HEADER.size and data.startswith(_MAGIC):
        header = TokenHeader(*_HEADER.unpack(data)[1:])
        if header.id_bytes in (1, 2, 4):
            return header
    raise DataError("not a file of ids", path)
