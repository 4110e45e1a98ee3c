"""Examples in a file of the cache, from where their columns are mapped: what has been read once is not read again.

A file is a head, its JSON, the arrays of all columns, each at a multiple of 64 bytes, and the checksums of the blocks
of these. It is complete or absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.cache import put, used
from ensue.cache_folders import cache_directory
from ensue.data.compact_texts import Columns, Numbers, RaggedRows, StringColumn, Texts, pieces
from ensue.data.files import readable
from ensue.data.mapped_file import BLOCK_BYTES, Checksums, MappedFile
from ensue.errors import DataError
from ensue.parsing import ParseError, parse_json
from ensue.version import VERSION

FORMAT = 3
"""Raise it when files are read otherwise, or when what is written changes."""
LEAST_BYTES = 1 << 20
"""Files of fewer bytes are read anew each time."""
WHOLE_BYTES = 1 << 26
"""Numbers of fewer bytes are checked when their file is opened, others block by block as they are read."""
_MAGIC = b"ensuerow"
_HEAD = struct.Struct("<8sIIQ")
"""Magic, the CRC-32 of the JSON, its size, and that of the file."""
_ALIGNED = 64
KINDS: dict[str, Any] = {"numbers": Numbers, "strings": StringColumn, "texts": Texts, "rows": RaggedRows}


class Kept(NamedTuple):
    """Columns of examples by the name of their part, and JSON values that tell more of them."""

    parts: Mapping[str, Columns | None]
    facts: dict[str, Any]
    key: str = ""
    """The digest of all that they depend on; "" if they are not in the cache."""


def kept(key: Any, paths: Iterable[Path], read: Callable[[], Kept]) -> Kept:
    """The examples of files, which `read` reads, unless the cache has them. `key` is JSON that tells all that they
    depend on, beside the code.

    Small files are not kept. Raises DataError if examples cannot be read or written.
    """
    return read() if sum(map(_size, paths)) < LEAST_BYTES else in_cache(key, read)


def in_cache(key: Any, read: Callable[[], Kept]) -> Kept:
    """Columns of any size, as `kept` reads them."""
    name = _name(key)
    if (found := _opened(cache_directory() / f"{name}.rows", name)) is not None:
        return found
    made = read()
    try:
        found = _opened(put(f"{name}.rows", partial(_write, made)), name)
    except OSError as error:
        raise DataError(f"examples cannot be written ({error.strerror or error})", cache_directory()) from error
    assert found is not None
    return found


def kept_array(key: Any, suffix: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """The numbers that `make` makes, from the cache if it has them. `key` is as of `kept`."""
    name = _name(key) + suffix
    with suppress(OSError, ValueError, EOFError):
        used(cache_directory() / name)
        found: NDArray[Any] = np.load(cache_directory() / name, allow_pickle=False)
        return found
    made = make()

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, made)

    with suppress(OSError):
        put(name, write)
    return made


def _name(key: Any) -> str:
    whole = json.dumps([FORMAT, VERSION, sys.version_info[:2], key], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def _size(path: Path) -> int:
    """The bytes of a file; of a data set enough to be kept."""
    with readable(path):
        return path.stat().st_size if path.exists() else LEAST_BYTES


def _write(found: Kept, path: Path) -> None:
    kinds, described, arrays = {kind: name for name, kind in KINDS.items()}, {}, []
    for part, rows in found.parts.items():
        columns: dict[str, Any] = {}
        for name, column in ({} if rows is None else rows.columns).items():
            own = column.arrays()
            columns[name] = [kinds[type(column)], [[key, array.dtype.str, len(array)] for key, array in own.items()]]
            arrays += [(column, array) for array in own.values()]
        described[part] = columns
    content = json.dumps({"facts": found.facts, "parts": described}).encode()
    with path.open("wb") as file:
        begin, sums = _aligned(_HEAD.size + len(content)), Checksums()
        length = sum(_aligned(array.nbytes) for _, array in arrays)
        size = begin + length + 4 * (length // BLOCK_BYTES + 1)
        file.write((_HEAD.pack(_MAGIC, zlib.crc32(content), len(content), size) + content).ljust(begin, b"\0"))
        for column, array in arrays:
            for piece in pieces(len(array)):
                sums.add(data := array[piece].tobytes())
                file.write(data)
                column.release()
            sums.add(padding := bytes(_aligned(array.nbytes) - array.nbytes))
            file.write(padding)
        file.write(sums.of_blocks())


def _opened(path: Path, key: str) -> Kept | None:
    """The examples in a file; None if it is missing, damaged, or cut off."""
    try:
        with path.open("rb") as file:
            magic, crc, length, size = _HEAD.unpack(file.read(_HEAD.size))
            if magic != _MAGIC or size != os.fstat(file.fileno()).st_size or length > size:
                return None
            content = file.read(length)
            if crc != zlib.crc32(content):
                return None
            mapped = MappedFile(file, path)
        used(path)
        index = parse_json(content)
        at, parts = _aligned(_HEAD.size + length), {}
        numbers = [array for columns in index["parts"].values() for _, arrays in columns.values() for array in arrays]
        end = at + sum(_aligned(np.dtype(code).itemsize * count) for _, code, count in numbers)
        mapped.checked_by(mapped.array("<u4", (end - at) // BLOCK_BYTES + 1, end), at)
        for part, columns in index["parts"].items():
            found: dict[str, Any] = {}
            for name, (kind, described) in columns.items():
                arrays = {}
                for own, code, count in described:
                    arrays[own] = mapped.array(code, count, at)
                    if arrays[own].nbytes < WHOLE_BYTES or own not in ("ids", "numbers"):
                        mapped.check(arrays[own])
                    at += _aligned(arrays[own].nbytes)
                found[name] = KINDS[kind].of(arrays, mapped)
            parts[part] = Columns(found) if found else None
            mapped.release()
    except (OSError, struct.error, ParseError, DataError):
        return None
    known: dict[str, str] = {}
    for column in (column for part in parts.values() if part is not None for column in part.columns.values()):
        strings = column.words if isinstance(column, Texts) else column
        if isinstance(strings, StringColumn):  # equal ones of several parts are one
            strings.values = [known.setdefault(value, value) for value in strings.values]
    return Kept(parts, index["facts"], key)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
