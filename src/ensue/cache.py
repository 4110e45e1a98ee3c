"""The cache: writing to it, its limit, and removing files from it.

A file belongs to ensue if it has a place, a name and first bytes that ensue gives. Nothing else is ever removed, so a
cache in a wrong folder (`ENSUE_CACHE=/home/user`) does no harm. A new kind of files is a line in `KINDS`.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ensue.cache_folders import cache_directory, cells_directory, temporary_directory
from ensue.notices import say_once

BOUND = "10GB"
"""The limit of the cache, unless ENSUE_CACHE_LIMIT sets another one."""
IN_USE_SECONDS = 3600
"""A file that was used within this time counts as in use. Training marks its files again and again (`used`)."""
ABANDONED_SECONDS = 24 * 3600
"""An incomplete file that is older than this was left by a process that was killed."""
_PARTIAL = re.compile(r"\.[0-9a-f]{8}\.partial\Z")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True)
class Kind:
    """Files of one kind: their folder, the form of their names, and their first bytes."""

    noun: str
    folder: Callable[[], Path]
    form: re.Pattern[str]
    begins: bytes = b""
    is_bounded: bool = True
    """Whether they are removed to make room. Profiles of machines are not: they are small, and new ones may differ."""


KINDS = (
    Kind("ids of texts", cache_directory, re.compile(r"[0-9a-f]{32}\.ids"), b"ensueids"),
    Kind("labeled examples", cache_directory, re.compile(r"[0-9a-f]{32}\.rows"), b"ensuerow"),
    Kind("digests of files", cache_directory, re.compile(r"[0-9a-f]{32}\.digest"), b"sha256 "),
    Kind("weights of n-grams", cache_directory, re.compile(r"[0-9a-f]{32}\.ngrams"), b"\x93NUMPY"),
    Kind("counted pairs of words", cache_directory, re.compile(r"[0-9a-f]{32}\.pairs"), b"ensuprs1"),
    Kind("vectors of words in texts", cache_directory, re.compile(r"[0-9a-f]{32}\.npy"), b"\x93NUMPY"),
    Kind("places of words in files of vectors", cache_directory, re.compile(r"[0-9a-f]{32}\.places"), b"\x93NUMPY"),
    Kind("decompressed files of vectors", cache_directory, re.compile(r"[0-9a-f]{32}\.vectors")),
    Kind("names of outputs", cache_directory, re.compile(r"[0-9a-f]{32}\.output"), b"ensue wrote "),
    Kind("tokenizers", cache_directory, re.compile(r"[0-9a-f]{32}\.json"), b'{"kind": '),
    Kind("compiled cells", cells_directory, re.compile(r"[0-9a-f]{32}\.[0-9a-f]{16}\.[a-z]+")),
    Kind(
        "profiles of machines", lambda: cache_directory() / "machines", re.compile(r"[0-9a-f]{16,64}\.json"),
        b'{"format":', is_bounded=False,
    ),
    Kind("texts of the quickstart", cache_directory, re.compile(r"ensue-python-[0-9a-f]{8}\.txt")),
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A file of the cache."""

    path: Path
    kind: Kind
    size: int
    used: float
    """When it was made or last used, in seconds since 1970."""

    @property
    def seconds(self) -> float:
        """The seconds since it was made or last used."""
        return time.time() - self.used

    @property
    def is_half_written(self) -> bool:
        """Whether it is incomplete."""
        return bool(_PARTIAL.search(self.path.name))


def entries() -> list[Entry]:
    """All files, also incomplete ones, in the order of their last use. Raises OSError if a folder cannot be read."""
    found = [entry for kind in KINDS for entry in _entries(kind)]
    return sorted(found, key=lambda entry: entry.used)


def remove(those: Iterable[Entry]) -> list[Entry]:
    """Removes files, except for those that are being written, and returns the removed ones.

    A process that has one open can go on reading it.
    """
    return [
        entry
        for entry in those
        if not (entry.is_half_written and entry.seconds < ABANDONED_SECONDS) and _removed(entry.path)
    ]


def make_room() -> None:
    """Removes abandoned files, and then those that were used longest ago until the rest is within the limit.

    Files in use stay.
    """
    with suppress(OSError):
        found = entries()
        gone = remove(entry for entry in found if entry.is_half_written)
        excess = sum(entry.size for entry in found) - sum(entry.size for entry in gone) - bound()
        for entry in found:
            if excess <= 0 or entry.seconds < IN_USE_SECONDS:
                return
            if entry.kind.is_bounded and not entry.is_half_written and remove([entry]):
                excess -= entry.size


def bound() -> int:
    """The limit of the cache in bytes: `$ENSUE_CACHE_LIMIT`, such as 500MB or 2.5GB, else 10GB."""
    text = os.environ.get("ENSUE_CACHE_LIMIT") or BOUND
    if (size := _bytes(text)) is None:
        say_once("bound", f"ENSUE_CACHE_LIMIT is {text!r:.40}, which is no size like 500MB; taken is {BOUND}")
        size = _bytes(BOUND)
        assert size is not None
    return size


def used(path: Path) -> None:
    """Marks a file as used, since unused files are removed first."""
    with suppress(OSError):
        os.utime(path)


def put(name: str, write: Callable[[Path], object]) -> Path:
    """Keeps the file that `write` makes under `name`, complete or not at all, and returns its path.

    If the cache cannot be used, the file goes to a temporary folder, and a notice says so. Raises OSError if that fails
    too.
    """
    try:
        with written_beside(cache_directory() / name) as partial:
            write(partial)
    except OSError as error:
        with written_beside(temporary_directory() / name) as partial:
            write(partial)
        reason = f"the cache cannot be used ({error.strerror or error}): nothing is kept"
        say_once("cache", f"{cache_directory()}: {reason}; ENSUE_CACHE names another folder")
        return temporary_directory() / name
    make_room()
    return cache_directory() / name


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A new file beside `path` to write to. It is renamed to `path` at the end, and removed if writing fails.

    Only the user may read it.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    try:
        partial.touch(0o600, exist_ok=False)
        yield partial
        partial.replace(path)
    finally:
        with suppress(OSError):
            partial.unlink()


def _bytes(size: str) -> int | None:
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([KMGT]?)B?", size.strip().upper())
    return int(float(found[1]) * _UNITS[found[2]]) if found else None


def _entries(kind: Kind) -> Iterator[Entry]:
    folder = kind.folder()
    if folder.is_symlink() and folder != cache_directory():  # leads out of the cache
        return
    try:
        files = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for file in files:
        if kind.form.fullmatch(_PARTIAL.sub("", file.name)) and file.is_file(follow_symlinks=False):
            with suppress(OSError):  # another process may remove it meanwhile
                if _PARTIAL.search(file.name) or _begins(file.path, kind.begins):
                    status = file.stat(follow_symlinks=False)
                    yield Entry(Path(file.path), kind, status.st_size, status.st_mtime)


def _begins(path: str, beginning: bytes) -> bool:
    if not beginning:
        return True
    with open(path, "rb") as file:
        return file.read(len(beginning)) == beginning


def _removed(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
