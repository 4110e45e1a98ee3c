"""The output of `ensue cache`: the content of the cache, and removed files."""

import re
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from ensue.cache import KINDS, CachedFile, cache_directory, cached_files, cells_directory, remove, size_limit
from ensue.console.tables import table_of
from ensue.errors import EnsueError

_UNITS = ("bytes", "KB", "MB", "GB", "TB")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


def show_cache() -> None:
    """Print the number, the total size and the last use of the files of each kind."""
    files = _list_entries()
    table = table_of("", right=("number", "size", "last used"))
    for kind in KINDS:
        _add_row(table, kind.noun, [entry for entry in files if entry.kind == kind])
    _add_row(table, "all", files)
    print(f"{cache_directory()}, at most {format_bytes(size_limit())}")
    if cells_directory() != cache_directory() / "cells":
        print(f"{cells_directory()}, for compiled cells")
    Console(highlight=False).print(table)


def clear_cache(older_than: str | None = None) -> None:
    """Remove all files, or the files that were not used for a time such as "30d", and print their number.

    Raises EnsueError for an invalid time, and for a file that cannot be removed.
    """
    seconds = 0
    if older_than is not None:
        match = re.fullmatch(r"([0-9]{1,9}) ?([smhdw])", older_than.strip().lower())
        if match is None:
            raise EnsueError(f"--older-than is {older_than!r:.40}; expected a time like 30d, 12h or 2w")
        seconds = int(match[1]) * _SECONDS[match[2]]
    entries = [entry for entry in _list_entries() if entry.seconds >= seconds]
    removed = remove(entries)
    print(f"removed {len(removed):,} of {len(entries):,} files, {_total_size(removed)}, from {cache_directory()}")
    for entry in entries:
        if entry not in removed and not entry.is_incomplete:
            raise EnsueError(f"{entry.path}: cannot be removed")


def format_bytes(count: float) -> str:
    """Return a number of bytes as text, such as `1.5 MB`."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.{0 if count >= 100 or count == int(count) else 1}f} {_UNITS[unit]}"


def _list_entries() -> list[CachedFile]:
    try:
        return cached_files()
    except OSError as error:
        raise EnsueError(f"{error.filename}: cannot be read ({error.strerror})") from None


def _add_row(table: Table, noun: str, files: Sequence[CachedFile]) -> None:
    last = time.strftime("%Y-%m-%d", time.localtime(max(entry.used for entry in files))) if files else ""
    table.add_row(noun, f"{len(files):,}", _total_size(files), last)


def _total_size(files: Sequence[CachedFile]) -> str:
    return format_bytes(sum(entry.size for entry in files))
