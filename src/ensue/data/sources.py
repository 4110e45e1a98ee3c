"""A file, a folder or a glob as one long text, in pieces; text from stdin, a pipe or a device, as it comes."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Self

from ensue.cache import put, used
from ensue.cache_folders import cache_directory
from ensue.data.decoding import BLOCK_BYTES, COMPRESSED, checked_encoding, decoded, joined, text_of
from ensue.data.files import Location, all_files, expanded, locations_in, named_locations, one_location, readable
from ensue.data.lines import Lines
from ensue.data.row_files import DatasetName, dataset_files, find_dataset
from ensue.data.row_formats import files_read
from ensue.errors import DataError
from ensue.parsing import asked
from ensue.text.boundaries import cut_at_boundaries

PIECE_CHARACTERS = 1 << 20
KEPT_BYTES = 16 << 20
"""Digests of larger files are in the cache, under what the system says of the file."""
SETTLED_SECONDS = 2.0
"""How long a file has to be unchanged for that. The clocks of file systems are coarse."""


class TextSource:
    """The text of a file, of a folder's files (recursively, sorted, without hidden ones) or of a glob's matches.

    `.xz` and `.gz` are decompressed as they are read. Nothing is translated: the text is the files' own, with a line
    end between two files if the first has none. Raises DataError for a missing path, a folder without files, a glob
    without matches, an unknown encoding, and text that is empty, damaged or in another encoding.
    """

    def __init__(self, location: Location, *, encoding: str = "utf-8") -> None:
        self.location = one_location(location)
        self.encoding = checked_encoding(encoding)
        self.paths = all_files(self.location)
        if not any(self._blocks()):
            raise DataError("the text is empty", self.location)

    @classmethod
    def joined(cls, sources: Sequence[Self]) -> Self:
        """The texts of several sources as one, in the encoding of the first."""
        whole = cls.__new__(cls)
        whole.location, whole.encoding = ", ".join(source.location for source in sources), sources[0].encoding
        whole.paths = tuple(path for source in sources for path in source.paths)
        return whole

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[str]:
        """The characters [start, stop) of the text in pieces of about a million.

        Wherever a piece has a boundary (`last_boundary`), it ends at one, so tokenizing the pieces equals tokenizing
        the whole. Memory does not grow with the text or its lines.
        """
        return cut_at_boundaries(_clipped(self._blocks(), start, stop), least=PIECE_CHARACTERS)

    def count_characters(self) -> int:
        """The length of the text; the first call reads it once."""
        return self._characters

    def fingerprint(self) -> str:
        """A digest of the files' bytes, in their order; the first call reads them once."""
        return self._digest

    @cached_property
    def _characters(self) -> int:
        return sum(map(len, self._blocks()))

    @cached_property
    def _digest(self) -> str:
        return digest_of(self.paths)

    def _blocks(self) -> Iterator[str]:
        ending = "\n"
        for path in self.paths:
            for position, block in enumerate(decoded(path, self.encoding)):
                if position == 0 and ending != "\n":
                    yield "\n"
                ending = block[-1]
                yield block

    def __repr__(self) -> str:
        files = "" if len(self.paths) == 1 else f", {len(self.paths)} files"
        return f"TextSource({self.location!r}{files})"


def _clipped(blocks: Iterator[str], start: int, stop: int | None) -> Iterator[str]:
    """The characters [start, stop) of the joined blocks."""
    position = 0
    for block in blocks:
        if stop is not None and position >= stop:
            return
        part = block[max(0, start - position) : None if stop is None else stop - position]
        position += len(block)
        if part:
            yield part


def digest_of(paths: Iterable[Path]) -> str:
    """A digest of the bytes of files, in their order, each with the text that is read with it."""
    digest = hashlib.sha256()
    for path in chain.from_iterable(map(files_read, paths)):
        suffix = path.suffix.lower()
        digest.update((suffix if suffix in COMPRESSED else "").encode())  # the same bytes would read otherwise
        digest.update(_file_digest(path))
    return digest.hexdigest()


def _file_digest(path: Path) -> bytes:
    if DatasetName.parse(str(path)):
        dataset, split = find_dataset(str(path))
        return f"{digest_of(dataset_files(dataset))}-{split}-{len(dataset)}".encode()
    with readable(path):
        state = path.stat()
        if state.st_size < KEPT_BYTES or time.time() - max(state.st_mtime, state.st_ctime) < SETTLED_SECONDS:
            return _sha256(path)
        key = [str(path.absolute()), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32] + ".digest"
        with suppress(OSError, ValueError):
            known = bytes.fromhex((cache_directory() / name).read_bytes().removeprefix(b"sha256 ").decode())
            used(cache_directory() / name)
            if len(known) == hashlib.sha256().digest_size:
                return known
        digest = _sha256(path)
        with suppress(OSError):
            if path.stat() == state:
                put(name, lambda kept: kept.write_bytes(b"sha256 " + digest.hex().encode()))
        return digest


def _sha256(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").digest()


def is_stream(path: str) -> bool:
    """Whether a location can be read only once: "-", which is stdin, or a pipe or device such as `<(...)`.

    Raises DataError for one among several.
    """
    names = locations_in(path)
    for name in names:
        with readable(name):
            found = asked(expanded(name))
            if name == "-" or (found.exists() and not found.is_file() and not found.is_dir()):
                if len(names) > 1:
                    raise DataError("a stream is read alone; expected files, folders or globs", stream_name(name))
                return True
    return False


def stream_name(path: str) -> str:
    """The name of the stream in messages."""
    return "stdin" if path == "-" else named_locations(path)


def stream_text(path: str, encoding: str = "utf-8", *, marked: bool = False) -> Iterator[str]:
    """The text line by line; if `marked`, with its byte order mark. Raises DataError if it cannot be decoded."""
    return text_of(_blocks(path), stream_name(path), checked_encoding(encoding), marked=marked)


def whole_text(path: str, encoding: str = "utf-8") -> str:
    """The whole text, in memory. Raises DataError for more than `MAX_CHARACTERS`."""
    return joined(stream_text(path, encoding), stream_name(path))


def stream_lines(path: str, encoding: str) -> Lines:
    """The text as numbered lines of bounded length."""
    return Lines(stream_text(path, encoding, marked=True), stream_name(path))


def is_typed(path: str) -> bool:
    """Whether a person types the texts, and waits for an answer after each."""
    return path == "-" and sys.stdin is not None and sys.stdin.isatty()


def _blocks(path: str) -> Iterator[bytes]:
    with readable(stream_name(path)):
        if path != "-":
            with expanded(path).open("rb") as stream:
                yield from iter(lambda: stream.readline(BLOCK_BYTES), b"")
        elif sys.stdin is None:
            raise DataError("closed", "stdin")
        else:
            yield from iter(lambda: sys.stdin.buffer.readline(BLOCK_BYTES), b"")
    yield b""
