"""The decompressed bytes of a file by lines and by counts, where a format has both. Text is read as text elsewhere."""

from __future__ import annotations

from pathlib import Path

from ensue.data.decoding import blocks

_LONGEST_PART = 1 << 26


class ByteReader:
    """Reads forward. Memory is that of a block and of the longest part, which has at most 64 MiB."""

    def __init__(self, path: Path) -> None:
        self._blocks = blocks(path)
        self._held = b""
        self._place = self._before = 0

    @property
    def position(self) -> int:
        """How many bytes of the content have been read."""
        return self._before + self._place

    def peek(self, count: int) -> bytes:
        """The next `count` bytes, or all that are left. They can still be read."""
        while len(self._held) - self._place < count and self._load():
            pass
        return self._held[self._place : self._place + count]

    def take(self, count: int) -> bytes | None:
        """The next `count` bytes; None if there are not so many."""
        taken = self.peek(count)
        if len(taken) < count:
            return None
        self._place += count
        return taken

    def until(self, mark: bytes) -> bytes | None:
        """The bytes before the next `mark`, a byte that is read too; None if there is none in the next 64 MiB."""
        seen = 0
        while (end := self._held.find(mark, self._place + seen)) < 0:
            seen = len(self._held) - self._place
            if seen > _LONGEST_PART or not self._load():
                return None
        part = self._held[self._place : end]
        self._place = end + 1
        return part

    def line(self) -> bytes | None:
        """The next line without its `\\n`; None at the end."""
        line = self.until(b"\n")
        if line is None and (rest := self._held[self._place :]):
            self._place = len(self._held)
            return rest
        return line

    def _load(self) -> bool:
        block = next(self._blocks, b"")
        self._held = self._held[self._place :] + block
        self._before += self._place
        self._place = 0
        return bool(block)
