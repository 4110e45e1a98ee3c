"""The ids of a text in many files, read as one; a file is mapped when it is first read."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.corpus.token_file import FAULT_BYTES, RELEASE_BYTES, TokenFile, header_of
from ensue.errors import DataError


class TokenShard(NamedTuple):
    """A file of ids (`write_tokens`), how many it has, and their CRC-32."""

    path: Path
    tokens: int
    crc: int

    def opened(self) -> TokenFile:
        """Its ids. Raises DataError if the file is not there or is another one."""
        self.check()
        return TokenFile.open(self.path)

    def check(self) -> None:
        """Raises DataError if the file is not there, is cut off, or is another one, by its header."""
        try:
            header, size = header_of(self.path), self.path.stat().st_size
        except OSError as error:
            raise DataError(f"a shard that cannot be read: {error.strerror or error}", self.path) from None
        if (header.tokens, header.crc) != (self.tokens, self.crc) or size != header.file_bytes:
            raise DataError("a shard that has changed since the text was prepared", self.path)


class ShardedTokens(TokenFile):
    """The ids of all shards, from the first to the last. What is read is copied, as of one file."""

    def __init__(
        self, shards: tuple[TokenShard, ...], *, unknown: int, characters: int, backwards: bool = False
    ) -> None:
        super().__init__(np.zeros(0, np.uint8), unknown=unknown, characters=characters)
        self.shards, self.backwards = shards, backwards
        self.ends = np.cumsum([shard.tokens for shard in shards], dtype=np.int64)
        self._size = int(self.ends[-1]) if shards else 0
        self._files: dict[int, TokenFile] = {}
        self._mapped: dict[int, int] = {}

    def __len__(self) -> int:
        return self._size

    def reversed(self) -> ShardedTokens:
        """The same ids from the last to the first."""
        return ShardedTokens(
            self.shards, unknown=self.unknown, characters=self.characters, backwards=not self.backwards
        )

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """A copy of the ids [start, stop)."""
        assert 0 <= start <= stop <= len(self), f"[{start}, {stop}) of {len(self)} ids"
        if self.backwards:
            return self._read(len(self) - stop, len(self) - start)[::-1]
        return self._read(start, stop)

    def read_rows(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """A copy of the ids [start, start + length) of each of the `starts`, (rows, length)."""
        rows = [self.read(start, start + length) for start in starts.tolist()]
        return np.stack(rows) if rows else np.zeros((0, length), np.int64)

    def _read(self, start: int, stop: int) -> NDArray[np.int64]:
        parts = []
        while start < stop:
            number = bisect_right(self.ends, start)
            first = int(self.ends[number]) - self.shards[number].tokens
            end = min(stop, int(self.ends[number]))
            parts.append(self._file(number).read(start - first, end - first))
            self._mapped[number] = self._mapped.get(number, 0) + parts[-1].nbytes + 2 * FAULT_BYTES
            start = end
        if sum(self._mapped.values()) >= RELEASE_BYTES:  # of all shards together, however many they are
            for number in self._mapped:
                self._files[number].release()
            self._mapped.clear()
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])

    def _file(self, number: int) -> TokenFile:
        if number not in self._files:
            self._files[number] = self.shards[number].opened()
        return self._files[number]

    def __repr__(self) -> str:
        return f"ShardedTokens({len(self):,} ids in {len(self.shards):,} shards)"
