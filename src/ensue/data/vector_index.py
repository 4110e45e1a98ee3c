"""Where in a file of word vectors each word stands, so that some words are found without reading the file.

The places are in the cache: for each row the hash of its word and where it begins, in the order of the hashes. Beside
them is the decompressed content of a file that is compressed. Both are made when the file is first asked, and again
when it has changed.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Collection
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ensue.cache import bound, put, used
from ensue.cache_folders import cache_directory
from ensue.data.decoding import COMPRESSED, blocks
from ensue.data.vectors import Row, file_of, open_table, read_vectors, row_at, vector_of, word_of
from ensue.errors import DataError
from ensue.stored import Copyable

FORMAT = 1
"""Raise it when rows are found otherwise."""


class VectorIndex(Copyable):
    """The vectors of words in a file, by their places. Raises DataError for a file without vectors.

    A file for which the cache has no room is read each time.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = file_of(path)
        table = open_table(self.path)
        self.dimension, self._is_binary = table.dimension, table.is_binary
        state = self.path.stat()
        key = [FORMAT, str(self.path.absolute()), state.st_size, state.st_mtime_ns]
        self._name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
        self._is_compressed = self.path.suffix.lower() in COMPRESSED

    @cached_property
    def _content(self) -> Path:
        """The file, or its decompressed content."""
        return self._kept(".vectors", self._write_content) if self._is_compressed else self.path

    @cached_property
    def _places(self) -> NDArray[np.uint64]:
        """The hashes of all words, ascending, and where their rows begin (2, N)."""
        try:
            return self._opened()
        except (ValueError, EOFError):  # damaged
            (cache_directory() / f"{self._name}.places").unlink(missing_ok=True)
            return self._opened()

    def _opened(self) -> NDArray[np.uint64]:
        places: NDArray[np.uint64] = np.load(self._kept(".places", self._write_places), mmap_mode="r")
        if places.dtype != np.uint64 or places.ndim != 2 or len(places) != 2:
            raise ValueError
        return places

    def find(self, words: Collection[str]) -> tuple[list[str], NDArray[np.float32]]:
        """The words that the file has, and their vectors (words, d). Raises DataError for a row that is none."""
        if self._is_compressed and 8 * self.path.stat().st_size > bound():
            return read_vectors(self.path, words)
        found, vectors = [], [np.empty((0, self.dimension), np.float32)]
        with self._content.open("rb") as file:
            for word in words:
                if (row := self._row(file, word.encode(errors="surrogatepass"))) and word_of(row):
                    try:
                        vectors.append(vector_of(row, self.dimension, self.path)[None])
                    except DataError:
                        read_vectors(self.path, {word})  # which knows the number of the line
                        raise
                    found.append(word)
        return found, np.concatenate(vectors)

    def _row(self, file: BinaryIO, word: bytes) -> Row | None:
        """The first row of a word."""
        hashes, starts = self._places
        first, last = (np.searchsorted(hashes, _hash(word), side) for side in ("left", "right"))
        rows = (row_at(file, int(start), self.dimension, is_binary=self._is_binary) for start in starts[first:last])
        return next((row for row in rows if row.word == word), None)

    def _kept(self, suffix: str, write: Callable[[Path], object]) -> Path:
        """A file of the cache."""
        path = cache_directory() / f"{self._name}{suffix}"
        if path.exists():
            used(path)
            return path
        try:
            return put(path.name, write)
        except OSError as error:
            raise DataError(f"places of words cannot be written ({error.strerror or error})", path.parent) from error

    def _write_content(self, path: Path) -> None:
        with path.open("wb") as file:
            file.writelines(blocks(self.path))

    def _write_places(self, path: Path) -> None:
        hashes, starts = array("Q"), array("Q")
        for row in open_table(self._content).rows:
            hashes.append(int(_hash(row.word)))
            starts.append(row.start)
        order = np.argsort(np.frombuffer(hashes, np.uint64), kind="stable")
        with path.open("wb") as file:
            np.save(file, np.stack([np.frombuffer(part, np.uint64)[order] for part in (hashes, starts)]))


def _hash(word: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "little"))
