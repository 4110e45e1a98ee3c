"""The answer of `ensue cache`: the content of the cache, and what was removed."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from ensue.cache import KINDS, Entry, bound, entries, remove
from ensue.cache_folders import cache_directory, cells_directory
from ensue.errors import EnsueError

_UNITS = ("bytes", "KB", "MB", "GB", "TB")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


def show_cache() -> None:
    """Prints number, size and last use of each kind of files."""
    found = _found()
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for name in ("number", "size", "last used"):
        table.add_column(name, justify="right")
    for kind in KINDS:
        _add(table, kind.noun, [entry for entry in found if entry.kind == kind])
    _add(table, "all", found)
    print(f"{cache_directory()}, at most {size(bound())}")
    if cells_directory() != cache_directory() / "cells":
        print(f"{cells_directory()}, for compiled cells")
    Console(highlight=False).print(table)


def clear_cache(older_than: str | None = None) -> None:
    """Removes all files, or those that were not used for a time ("30d"), and prints how many were removed.

    Raises EnsueError for a time that cannot be read, and for a file that cannot be removed.
    """
    seconds = 0 if older_than is None else _seconds(older_than)
    chosen = [entry for entry in _found() if entry.seconds >= seconds]
    gone = remove(chosen)
    print(f"removed {len(gone):,} of {len(chosen):,} files, {_total(gone)}, from {cache_directory()}")
    stays = [entry for entry in chosen if entry not in gone and not entry.is_half_written]
    if stays:
        raise EnsueError(f"{stays[0].path}: cannot be removed")


def size(count: float) -> str:
    """A number of bytes for people, such as `1.5 MB`."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.{0 if count >= 100 or count == int(count) else 1}f} {_UNITS[unit]}"


def _found() -> list[Entry]:
    try:
        return entries()
    except OSError as error:
        raise EnsueError(f"{error.filename}: cannot be read ({error.strerror})") from None


def _add(table: Table, noun: str, those: Sequence[Entry]) -> None:
    last = time.strftime("%Y-%m-%d", time.localtime(max(entry.used for entry in those))) if those else ""
    table.add_row(noun, f"{len(those):,}", _total(those), last)


def _total(those: Sequence[Entry]) -> str:
    return size(sum(entry.size for entry in those))


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,9}) ?([smhdw])", text.strip().lower())
    if found is None:
        raise EnsueError(f"--older-than is {text!r:.40}; expected a time like 30d, 12h or 2w")
    return int(found[1]) * _SECONDS[found[2]]
