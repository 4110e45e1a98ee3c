"""The ids of a text in many files, read as one. A file is mapped when it is read, and so many at a time as may be open.

A map keeps a file open as long as it is there, and a system bounds how many files a process has open.
"""

from __future__ import annotations

import errno
import sys
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.corpus.token_file import TokenFile, check_tokens, header_of
from ensue.data.mapped_file import FAULT_BYTES, RELEASE_BYTES
from ensue.errors import DataError

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]

SHARE = 4
"""A text takes one of so many parts of the files that a process may have open."""
MOST_FILES = 1 << 13
"""A system also bounds how many maps a process has, to 65,530 by default on Linux."""


class TokenShard(NamedTuple):
    """A file of ids (`write_tokens`), how many it has, and their CRC-32."""

    path: Path
    tokens: int
    crc: int

    def opened(self) -> TokenFile:
        """Its ids, checked as they are read. Raises DataError if the file is missing, changed, or cannot be opened."""
        self.check()
        with _told(self.path):
            return TokenFile.open(self.path, checks=True)

    def check(self) -> None:
        """Raises DataError if the file is not there, is cut off, or is another one, by its header."""
        with _told(self.path):
            header, size = header_of(self.path), self.path.stat().st_size
        if (header.tokens, header.crc) != (self.tokens, self.crc) or size not in header.sizes:
            raise DataError("a shard that has changed since the text was prepared", self.path)

    def verify(self) -> None:
        """Reads the file. Raises DataError unless it is as it was written."""
        self.check()
        check_tokens(self.path)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Tells in one line why a shard cannot be read."""
    try:
        yield
    except OSError as error:
        remedy = "; `ulimit -n 4096` lets a process have more" if error.errno == errno.EMFILE else ""
        raise DataError(f"a shard that cannot be read: {error.strerror or error}{remedy}", path) from None


class _Maps:
    """The shards that are mapped, of which those that were used last stay."""

    def __init__(self, shards: tuple[TokenShard, ...]) -> None:
        self.shards, self.most = shards, _files_at_once(len(shards))
        self._files: OrderedDict[int, TokenFile] = OrderedDict()
        self._touched: set[int] = set()
        self._mapped = 0
        """How many bytes of the shards touched may be resident."""

    def read(self, number: int, start: int, stop: int) -> NDArray[np.int64]:
        """A copy of the ids [start, stop) of a shard."""
        if number in self._files:
            self._files.move_to_end(number)
        else:
            while len(self._files) >= self.most:
                oldest, _ = self._files.popitem(last=False)
                self._touched.discard(oldest)
            self._files[number] = self.shards[number].opened()
        found = self._files[number].read(start, stop)
        self._touched.add(number)
        self._mapped += found.nbytes + 2 * FAULT_BYTES
        if self._mapped >= RELEASE_BYTES:  # of all shards together, however many they are
            for touched in self._touched:
                self._files[touched].release()
            self._touched.clear()
            self._mapped = 0
        return found


def _files_at_once(wanted: int) -> int:
    """How many of the `wanted` files may be open at a time. The limit of this process is raised as far as it may be."""
    if resource is None:
        return min(wanted, 512)
    known = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in known)
    needed = SHARE * min(wanted, MOST_FILES)
    if soft < needed:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), known[1]))
            soft = min(needed, hard)
    return max(1, min(needed, soft) // SHARE)


class ShardedTokens(TokenFile):
    """The ids of all shards, from the first to the last. What is read is copied, as of one file."""

    def __init__(
        self, shards: tuple[TokenShard, ...], *, unknown: int, characters: int, maps: _Maps | None = None,
        backwards: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(np.zeros(0, np.uint8), unknown=unknown, characters=characters)
        self.shards, self.backwards, self._maps = shards, backwards, maps or _Maps(shards)
        self.ends = np.cumsum([shard.tokens for shard in shards], dtype=np.int64)
        self._size = int(self.ends[-1]) if shards else 0

    def __len__(self) -> int:
        return self._size

    def reversed(self) -> ShardedTokens:
        """These ids from the last to the first."""
        return ShardedTokens(
            self.shards, unknown=self.unknown, characters=self.characters, maps=self._maps,
            backwards=not self.backwards,
        )  # fmt: skip

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
            parts.append(self._maps.read(number, start - first, end - first))
            start = end
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])

    def __repr__(self) -> str:
        return f"ShardedTokens({len(self):,} ids in {len(self.shards):,} shards)"
