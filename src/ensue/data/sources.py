"""Sources of text: files, folders and globs in chunks, and streams such as stdin line by line."""

import codecs
import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Self

from ensue.cache import cache_directory, json_digest, mark_used, write_cached
from ensue.data.decoding import BLOCK_BYTES, COMPRESSED, check_encoding, decode, decode_blocks, join_chunks, read_blocks
from ensue.data.files import Data, all_files, as_location, expanduser, files_of, join_locations, locations_in, os_errors
from ensue.data.lines import Lines
from ensue.data.row_files import dataset_files, find_dataset
from ensue.data.row_formats import input_files
from ensue.errors import FILES_OF_ROWS, DataError
from ensue.extension import is_address
from ensue.notices import warn_once
from ensue.parsing import check_access
from ensue.text.boundaries import cut_at_boundaries

CHUNK_CHARACTERS = 1 << 20
MIN_CACHED_BYTES = 16 << 20
"""The minimum size of a file whose digest is cached. The cache key includes the inode, size and times of the file."""
MIN_AGE_SECONDS = 2.0
"""The minimum age of a file whose digest is cached. A newer file may change within the resolution of file times."""


class TextSource:
    """The concatenated text of a file, a folder (recursive, sorted, without hidden files) or a glob.

    `.xz` and `.gz` files are decompressed while reading. A line end is added between two files if the first file does
    not end with a line end. Raises DataError for a missing path, a folder or glob without files, an unknown encoding,
    and text that is empty, damaged or in another encoding.
    """

    def __init__(self, location: Data, *, encoding: str = "utf-8") -> None:
        self.location = as_location(location)
        self.encoding = check_encoding(encoding)
        self.paths = all_files(self.location)
        if self.location in FILES_OF_ROWS and self.location.endswith(".jsonl"):
            problem = 'rows with several columns; expected one column of texts, such as table["text"]'
            raise DataError(problem, self.location)
        if not any(self._blocks()):
            raise DataError("the text is empty", self.location)

    @classmethod
    def concatenate(cls, sources: Sequence[Self]) -> Self:
        """Return a source of the concatenated text of several sources that have the same encoding."""
        result = cls.__new__(cls)
        result.location, result.encoding = ", ".join(source.location for source in sources), sources[0].encoding
        result.paths = tuple(path for source in sources for path in source.paths)
        return result

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[str]:
        """Yield the characters [start, stop) of the text in chunks of about a million characters.

        A chunk that contains a boundary (`last_boundary`) ends at a boundary, so that chunks can be tokenized
        separately. Memory is bounded, even for a text without line ends.
        """
        return cut_at_boundaries(_clip(self._blocks(), start, stop), min_length=CHUNK_CHARACTERS)

    def fingerprint(self) -> str:
        """Return a digest of the bytes of all files, in order. The first call reads the files."""
        return self._digest

    @cached_property
    def num_characters(self) -> int:
        """The number of characters in the text. The first access reads the text."""
        return sum(map(len, self._blocks()))

    @cached_property
    def _digest(self) -> str:
        return digest_of(self.paths)

    def _blocks(self) -> Iterator[str]:
        last_character = "\n"
        for path in self.paths:
            for position, block in enumerate(decode(path, self.encoding)):
                if position == 0 and last_character != "\n":
                    yield "\n"
                last_character = block[-1]
                yield block

    def __repr__(self) -> str:
        files = "" if len(self.paths) == 1 else f", {len(self.paths)} files"
        return f"TextSource({self.location!r}{files})"


def _clip(blocks: Iterator[str], start: int, stop: int | None) -> Iterator[str]:
    position = 0
    for block in blocks:
        if stop is not None and position >= stop:
            return
        if clipped := block[max(0, start - position) : None if stop is None else stop - position]:
            yield clipped
        position += len(block)


def digest_of_each(paths: Sequence[Path]) -> str:
    """Return a digest of the digests of files; for a single file its digest."""
    digests = [digest_of([path]) for path in paths]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def digest_of(paths: Iterable[Path]) -> str:
    """Return a digest of the bytes of files, in order, including the texts beside annotations of brat."""
    digest = hashlib.sha256()
    for path in chain.from_iterable(map(input_files, paths)):
        suffix = path.suffix.lower()
        digest.update((suffix if suffix in COMPRESSED else "").encode())  # the suffix determines decompression
        digest.update(_file_digest(path))
    return digest.hexdigest()


def _file_digest(path: Path) -> bytes:
    if is_address(path):
        dataset, split = find_dataset(str(path))
        return f"{digest_of(dataset_files(dataset))}-{split}-{len(dataset)}".encode()
    with os_errors(path):
        state = path.stat()
        if state.st_size < MIN_CACHED_BYTES or time.time() - max(state.st_mtime, state.st_ctime) < MIN_AGE_SECONDS:
            return _read_digest(path)
        key = [str(path.absolute()), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]
        name = f"{json_digest(key)}.digest"
        with suppress(OSError, ValueError):
            digest = bytes.fromhex((cache_directory() / name).read_bytes().removeprefix(b"sha256 ").decode())
            mark_used(cache_directory() / name)
            if len(digest) == hashlib.sha256().digest_size:
                return digest
        digest = _read_digest(path)
        with suppress(OSError, DataError):
            if path.stat().st_ctime_ns == state.st_ctime_ns:
                write_cached(name, lambda file: file.write_bytes(b"sha256 " + digest.hex().encode()))
        return digest


def _read_digest(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").digest()


def is_stream(path: str) -> bool:
    """Return whether a location can be read only once: "-" (stdin), or a pipe or device such as `<(...)`.

    Raises DataError if a location that can be read only once is one of several locations.
    """
    names = locations_in(path)
    for name in names:
        with os_errors(name):
            result = check_access(expanduser(name))
            if name == "-" or (result.exists() and not result.is_file() and not result.is_dir()):
                if len(names) > 1:
                    raise DataError("a stream cannot be one of several locations; expected files", stream_name(name))
                return True
    return False


def stream_name(path: str) -> str:
    """Return the name of a stream in messages."""
    return "stdin" if path == "-" else join_locations(path)


def stream_text(path: str, encoding: str = "utf-8", *, marked: bool = False) -> Iterator[str]:
    """Yield the lines of a stream, with its byte order mark if `marked`. Raises DataError for invalid bytes."""
    return decode_blocks(_blocks(path), stream_name(path), check_encoding(encoding), marked=marked)


def read_stream(path: str, encoding: str = "utf-8") -> str:
    """Return the text of a stream. Raises DataError above `MAX_CHARACTERS`."""
    return join_chunks(stream_text(path, encoding), stream_name(path))


def stream_lines(path: str, encoding: str) -> Lines:
    """Return the numbered lines of a stream."""
    return Lines(stream_text(path, encoding, marked=True), stream_name(path))


def text_lines(location: str, encoding: str) -> Lines:
    """Return the numbered lines of the text of a file, a folder, a glob or a stream."""
    if is_stream(location):
        return stream_lines(location, encoding)
    return Lines(TextSource(location, encoding=encoding).chunks(), location)


def encoding_like(trained: str, location: str) -> str:
    """Return the encoding `trained` of a model's training data, or UTF-8 if the text at `location` is in UTF-8.

    The first bytes of the first file decide, unless all of them are ASCII. Streams other than stdin are not examined.
    Rows from Python are UTF-8.
    """
    if not trained or check_encoding(trained) == "utf-8" or is_typed(location) or location in FILES_OF_ROWS:
        return "utf-8"
    with suppress(DataError, UnicodeDecodeError):  # the reader of the data reports an error
        if location == "-":
            stream: Any = getattr(sys.stdin, "buffer", None)
            first = stream.peek() if hasattr(stream, "peek") else b""
        else:
            name = locations_in(location)[0]
            name = name if os.path.exists(name) else name.partition(",")[0]  # the first of two aligned files
            first = b"" if is_stream(location) else next(read_blocks(files_of(name)[0]), b"")
        if not codecs.getincrementaldecoder("utf-8")().decode(first).isascii():
            name = stream_name(location)
            warn_once(f"encoding {name}", f"{name}: read as UTF-8; --encoding {trained} reads it as in training")
            return "utf-8"
    return trained


def is_typed(path: str) -> bool:
    """Return whether a location is stdin, connected to a terminal."""
    return path == "-" and sys.stdin is not None and sys.stdin.isatty()


def _blocks(path: str) -> Iterator[bytes]:
    with os_errors(stream_name(path)):
        if path != "-":
            with expanduser(path).open("rb") as stream:
                yield from iter(lambda: stream.readline(BLOCK_BYTES), b"")
        elif sys.stdin is None:
            raise DataError("closed", "stdin")
        else:
            yield from iter(lambda: sys.stdin.buffer.readline(BLOCK_BYTES), b"")
    yield b""
