"""The ids of a text on disk, memory-mapped. Reading copies, and no page of the file stays resident for long.

A file is a header, the ids, and a CRC-32 of each of its pages; files that were written before have no such checksums.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ensue.data.mapped_file import Checksums, MappedFile
from ensue.errors import DataError

_HEADER = struct.Struct("<8sIIQQQ")
"""Magic, bytes per id, CRC-32 of the ids, and how many ids, unknown ids and characters there are."""
_MAGIC = b"ensueids"
_BLOCK_BYTES = 1 << 20
_PAGE = 1 << 12
"""Bytes of the file that share a checksum. Whoever reads an id has read its page, so that checking reads no more."""


class TokenFile:
    """A sequence of ids that is read in slices. It holds an array, or maps a file (`open`).

    `unknown` is how many of the ids are the tokenizer's unknown id, `characters` the length of the text behind them.
    """

    unknown: int
    characters: int

    def __init__(
        self,
        ids: NDArray[Any],
        *,
        unknown: int = 0,
        characters: int = 0,
        file: MappedFile | None = None,
        checksums: NDArray[np.uint32] | None = None,
    ) -> None:
        self.unknown = unknown
        self.characters = characters
        self._ids, self._file, self._checksums = ids, file, checksums

    @classmethod
    def open(cls, path: Path, *, checks: bool = False) -> Self:
        """Maps the file at `path`. Raises DataError if `write_tokens` has not written it or if it was cut, and OSError
        if it cannot be read. With `checks`, `read` raises DataError for a page that has changed.
        """
        header = header_of(path)
        with path.open("rb") as file:
            if (size := file.seek(0, 2)) not in header.sizes:
                raise DataError("the ids are cut off", path)
            mapped = MappedFile(file, path)
        ids = mapped.array(f"<u{header.id_bytes}", header.tokens, _HEADER.size)
        checksums = None
        if checks and size > header.file_bytes:
            checksums = mapped.array("<u4", header.pages, header.file_bytes)
        return cls(ids, unknown=header.unknown, characters=header.characters, file=mapped, checksums=checksums)

    def reversed(self) -> TokenFile:
        """These ids from the last to the first."""
        return TokenFile(self._ids[::-1], unknown=self.unknown, characters=self.characters, file=self._file)

    def __len__(self) -> int:
        return len(self._ids)

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """A copy of the ids [start, stop)."""
        assert 0 <= start <= stop <= len(self), f"[{start}, {stop}) of {len(self)} ids"
        part = self._ids[start:stop]
        if self._checksums is not None:
            self._check(start, stop)
        ids = part.astype(np.int64)
        if self._file is not None:
            self._file.touched(part.nbytes)
        return ids

    def read_rows(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """A copy of the ids [start, start + length) of each of the `starts`, (rows, length)."""
        assert len(starts) == 0 or (starts.min() >= 0 and starts.max() + length <= len(self)), "beyond the ids"
        part = self._ids[starts[:, None] + np.arange(length)]
        if self._file is not None:
            self._file.touched(part.nbytes, 1 + len(starts))
        ids: NDArray[np.int64] = part.astype(np.int64)
        return ids

    def _check(self, start: int, stop: int) -> None:
        """Raises DataError if a page with the ids [start, stop) has changed."""
        assert self._file is not None
        assert self._checksums is not None
        size, end = self._ids.itemsize, _HEADER.size + self._ids.nbytes
        for page in range((_HEADER.size + start * size) // _PAGE, -(-(_HEADER.size + stop * size) // _PAGE)):
            data = self._file[max(page * _PAGE, _HEADER.size) : min((page + 1) * _PAGE, end)]
            if zlib.crc32(data) != self._checksums[page]:
                raise DataError(
                    f"damaged: bytes {page * _PAGE:,} to {(page + 1) * _PAGE:,} have changed", self._file.path
                )

    def release(self) -> None:
        """Gives all pages back, and marks the file as used."""
        if self._file is not None:
            self._file.release()

    def __repr__(self) -> str:
        return f"TokenFile({len(self):,} ids, {self.unknown:,} unknown, {self.characters:,} characters)"


def write_tokens(
    path: Path, pieces: Iterable[tuple[NDArray[Any], int]], *, vocabulary_size: int, unknown_id: int | None
) -> None:
    """Writes the ids of `pieces`, in the fewest bytes per id. A piece is ids and the number of their characters."""
    size = 1 if vocabulary_size <= 1 << 8 else 2 if vocabulary_size <= 1 << 16 else 4
    sums = Checksums(_PAGE, _HEADER.size)
    count = unknown = characters = 0
    with path.open("wb") as file:
        file.write(bytes(_HEADER.size))
        for ids, piece_characters in pieces:
            data = ids.astype(f"<u{size}").tobytes()
            file.write(data)
            sums.add(data)
            count += len(ids)
            unknown += 0 if unknown_id is None else int(np.count_nonzero(ids == unknown_id))
            characters += piece_characters
        file.write(sums.of_blocks())
        file.seek(0)
        file.write(TokenHeader(size, sums.whole, count, unknown, characters).bytes)


def check_tokens(path: Path) -> None:
    """Raises DataError unless the ids at `path` and their checksums are those that were written. They are read once."""
    sums = Checksums(_PAGE, _HEADER.size)
    with path.open("rb") as file:
        header = _read_header(file.read(_HEADER.size), path)
        rest = header.file_bytes - _HEADER.size
        while rest and (block := file.read(min(_BLOCK_BYTES, rest))):
            sums.add(block)
            rest -= len(block)
        after = file.read(4 * header.pages + 1)
    if rest or sums.whole != header.crc or after not in (b"", sums.of_blocks()):
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
        """The size of the file up to the last id."""
        return _HEADER.size + self.tokens * self.id_bytes

    @property
    def pages(self) -> int:
        """How many pages have checksums behind the ids."""
        return self.file_bytes // _PAGE + 1

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes that the file may have: without checksums of pages, or with them."""
        return self.file_bytes, self.file_bytes + 4 * self.pages

    @property
    def bytes(self) -> bytes:
        """The header as it stands in the file."""
        return _HEADER.pack(_MAGIC, *self)


def header_of(path: Path) -> TokenHeader:
    """The header of a file. Raises DataError if it is none of ids, and OSError if it cannot be read."""
    with path.open("rb") as file:
        return _read_header(file.read(_HEADER.size), path)


def _read_header(data: bytes, path: Path) -> TokenHeader:
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        raise DataError("not a file of ids", path)
    _, *numbers = _HEADER.unpack(data)
    header = TokenHeader(*numbers)
    if header.id_bytes not in (1, 2, 4):
        raise DataError("not a file of ids", path)
    return header
