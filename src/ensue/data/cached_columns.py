"""Cache of examples: data are read once, and the columns of the examples are stored in a memory-mapped file.

A file has a header, a JSON index, the arrays of all columns, each at a multiple of 64 bytes, and the checksums of all
blocks of the arrays. Files are written atomically.
"""

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

from ensue.cache import cache_directory, json_digest, mark_used, write_cached
from ensue.data.compact_texts import Columns, Numbers, RaggedRows, StringColumn, Texts, slices_of
from ensue.data.files import os_errors
from ensue.data.mapped_file import BLOCK_BYTES, Checksums, MappedFile
from ensue.errors import DataError
from ensue.parsing import ParseError, parse_json
from ensue.version import VERSION

FORMAT_VERSION = 3
"""The version of the format. It increases if the format or the readers of files change."""
MIN_CACHED_BYTES = 1 << 20
"""Smaller files are not cached."""
MAX_CHECKED_BYTES = 1 << 26
"""Larger arrays of ids or numbers are verified while they are read. Other arrays are verified when they are opened."""
_MAGIC = b"ensuerow"
_HEAD = struct.Struct("<8sIIQ")
"""The magic bytes, the CRC-32 of the JSON, its size, and the size of the file."""
_ALIGNMENT_BYTES = 64
KINDS: dict[str, Any] = {"numbers": Numbers, "strings": StringColumn, "texts": Texts, "rows": RaggedRows}


class CachedColumns(NamedTuple):
    """Columns of examples, and JSON values that describe them (`metadata`)."""

    splits: Mapping[str, Columns | None]
    """The columns of each split of the data, such as "train"; None for a split without examples."""
    metadata: dict[str, Any]
    key: str = ""
    """The cache key; "" if the examples are not cached."""


def cache_large_columns(key: Any, paths: Iterable[Path], read: Callable[[], CachedColumns]) -> CachedColumns:
    """Return the result of `read`, from the cache if the files have at least `MIN_CACHED_BYTES` in total.

    `key` is a JSON value that determines the result.
    """
    return read() if sum(map(_size, paths)) < MIN_CACHED_BYTES else cache_columns(key, read)


def cache_columns(key: Any, read: Callable[[], CachedColumns]) -> CachedColumns:
    """Return the result of `read` from the cache. If the cache lacks `key`, the result is computed and stored."""
    name = _digest(key)
    if (result := _open_cached(cache_directory() / f"{name}.rows", name)) is not None:
        return result
    computed = read()
    result = _open_cached(write_cached(f"{name}.rows", partial(_write, computed)), name)
    assert result is not None
    return result


def cache_array(key: Any, suffix: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """Return the result of `make`, from the cache if possible. `key` is a JSON value that determines the array."""
    name = _digest(key) + suffix
    with suppress(OSError, ValueError, EOFError):
        mark_used(cache_directory() / name)
        return np.load(cache_directory() / name, allow_pickle=False)
    computed = make()

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, computed)

    with suppress(DataError):
        write_cached(name, write)
    return computed


def _digest(key: Any) -> str:
    return json_digest([FORMAT_VERSION, VERSION, sys.version_info[:2], key])


def _size(path: Path) -> int:
    """Return the size of a file in bytes. Other locations, such as a data set, count as large."""
    with os_errors(path):
        return path.stat().st_size if path.exists() else MIN_CACHED_BYTES


def _write(result: CachedColumns, path: Path) -> None:
    kinds, splits, arrays = {kind: name for name, kind in KINDS.items()}, {}, []
    for split, rows in result.splits.items():
        columns: dict[str, Any] = {}
        for name, column in ({} if rows is None else rows.columns).items():
            named = column.arrays()
            columns[name] = [kinds[type(column)], [[key, array.dtype.str, len(array)] for key, array in named.items()]]
            arrays += [(column, array) for array in named.values()]
        splits[split] = columns
    content = json.dumps({"facts": result.metadata, "parts": splits}).encode()
    with path.open("wb") as file:
        begin, sums = _align(_HEAD.size + len(content)), Checksums()
        length = sum(_align(array.nbytes) for _, array in arrays)
        size = begin + length + 4 * (length // BLOCK_BYTES + 1)
        file.write((_HEAD.pack(_MAGIC, zlib.crc32(content), len(content), size) + content).ljust(begin, b"\0"))
        for column, array in arrays:
            for block in slices_of(len(array)):
                sums.add(data := array[block].tobytes())
                file.write(data)
                column.release()
            sums.add(padding := bytes(_align(array.nbytes) - array.nbytes))
            file.write(padding)
        file.write(sums.of_blocks())


def _open_cached(path: Path, digest: str) -> CachedColumns | None:
    try:
        with path.open("rb") as file:
            magic, crc, length, size = _HEAD.unpack(file.read(_HEAD.size))
            if magic != _MAGIC or size != os.fstat(file.fileno()).st_size or length > size:
                return None
            content = file.read(length)
            if crc != zlib.crc32(content):
                return None
            mapped = MappedFile(file, path)
        mark_used(path)
        index = parse_json(content)
        offset, splits = _align(_HEAD.size + length), {}
        numbers = [array for columns in index["parts"].values() for _, arrays in columns.values() for array in arrays]
        end = offset + sum(_align(np.dtype(code).itemsize * count) for _, code, count in numbers)
        mapped.set_checksums(mapped.array("<u4", (end - offset) // BLOCK_BYTES + 1, end), offset)
        for split, columns in index["parts"].items():
            result: dict[str, Any] = {}
            for name, (kind, array_specs) in columns.items():
                arrays = {}
                for key, code, count in array_specs:
                    arrays[key] = mapped.array(code, count, offset)
                    if arrays[key].nbytes < MAX_CHECKED_BYTES or key not in ("ids", "numbers"):
                        mapped.check(arrays[key])
                    offset += _align(arrays[key].nbytes)
                result[name] = KINDS[kind].of(arrays, mapped)
            splits[split] = Columns(result) if result else None
            mapped.release()
    except (OSError, struct.error, ParseError, DataError):
        return None
    shared_strings: dict[str, str] = {}
    for column in (column for split in splits.values() if split is not None for column in split.columns.values()):
        strings = column.words if isinstance(column, Texts) else column
        if isinstance(strings, StringColumn):  # equal strings of several columns share one object
            strings.values = [shared_strings.setdefault(value, value) for value in strings.values]
    return CachedColumns(splits, index["facts"], digest)


def _align(size: int) -> int:
    return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
