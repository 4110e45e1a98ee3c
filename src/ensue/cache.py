"""The cache: its folder, atomic writing of cached files, the size limit, and the removal of cached files.

A file belongs to the cache if a row of `KINDS` matches its folder, its name and, if the file is complete, its first
bytes. No other file is removed, so a wrong folder for the cache (`ENSUE_CACHE=/home/user`) does no harm.
"""

import atexit
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ensue.errors import DataError
from ensue.notices import warn_once


def cache_directory() -> Path:
    """Return `$ENSUE_CACHE`, else `$XDG_CACHE_HOME/ensue`, else `~/.cache/ensue`, else a temporary folder."""
    if folder := os.environ.get("ENSUE_CACHE"):
        return Path(folder)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "ensue"
    try:
        return Path.home() / ".cache" / "ensue"
    except RuntimeError:
        warn_once("cache", "there is no home directory: nothing is cached; set ENSUE_CACHE to a folder for the cache")
        return temporary_directory()


def cells_directory() -> Path:
    """Return the folder of compiled cells: `$ENSUE_CELLS`, else `cells` in the cache."""
    folder = os.environ.get("ENSUE_CELLS")
    return Path(folder) if folder else cache_directory() / "cells"


@cache
def temporary_directory() -> Path:
    """Return the temporary folder of this process, private to the user and removed at exit. Raises OSError."""
    path, process = Path(tempfile.mkdtemp(prefix="ensue-")), os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # a forked process must not remove the folder
            shutil.rmtree(path, ignore_errors=True)

    atexit.register(remove)
    return path


DEFAULT_LIMIT, DEFAULT_LIMIT_BYTES = "10GB", 10**10
IN_USE_SECONDS = 3600
"""`make_room` keeps a file for this time after its last use. Training marks its files regularly (`mark_used`)."""
ABANDONED_SECONDS = 24 * 3600
"""The age in seconds from which an incomplete file is assumed to be left by a killed process."""
_PARTIAL = re.compile(r"\.[0-9a-f]{8}\.partial\Z")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True)
class CacheKind:
    """A kind of cached files: their folder, the pattern of their names, and their first bytes."""

    noun: str
    folder: Callable[[], Path]
    pattern: re.Pattern[str]
    prefix: bytes = b""
    is_bounded: bool = True
    """Whether `make_room` may remove the files. Profiles of machines are small and stay in the cache."""


KINDS = (
    CacheKind("ids of texts", cache_directory, re.compile(r"[0-9a-f]{32}\.ids"), b"ensueids"),
    CacheKind("labeled examples", cache_directory, re.compile(r"[0-9a-f]{32}\.rows"), b"ensuerow"),
    CacheKind("digests of files", cache_directory, re.compile(r"[0-9a-f]{32}\.digest"), b"sha256 "),
    CacheKind("weights of n-grams", cache_directory, re.compile(r"[0-9a-f]{32}\.ngrams"), b"\x93NUMPY"),
    CacheKind("counted pairs of words", cache_directory, re.compile(r"[0-9a-f]{32}\.pairs"), b"ensuprs1"),
    CacheKind("vectors of words in texts", cache_directory, re.compile(r"[0-9a-f]{32}\.npy"), b"\x93NUMPY"),
    CacheKind("offsets of words in vector files", cache_directory, re.compile(r"[0-9a-f]{32}\.places"), b"\x93NUMPY"),
    CacheKind("decompressed files of vectors", cache_directory, re.compile(r"[0-9a-f]{32}\.vectors")),
    CacheKind("records of written files", cache_directory, re.compile(r"[0-9a-f]{32}\.output"), b"ensue wrote "),
    CacheKind("tokenizers", cache_directory, re.compile(r"[0-9a-f]{32}\.json"), b'{"kind": '),
    CacheKind("compiled cells", cells_directory, re.compile(r"[0-9a-f]{32}\.[0-9a-f]{16}\.[a-z]+")),
    CacheKind(
        "profiles of machines", lambda: cache_directory() / "machines", re.compile(r"[0-9a-f]{16,64}\.json"),
        b'{"format":', is_bounded=False,
    ),
    CacheKind("data in memory", lambda: cache_directory() / "data", re.compile(r"rows-[0-9a-f]{16}\S*(jsonl|txt)")),
    CacheKind("texts of the quickstart", cache_directory, re.compile(r"ensue-python-[0-9a-f]{8}\.txt")),
)  # fmt: skip


@dataclass(frozen=True)
class CachedFile:
    """A file of the cache."""

    path: Path
    kind: CacheKind
    size: int
    used: float
    """The time of creation or last use, in seconds since 1970."""

    @property
    def seconds(self) -> float:
        """The seconds since the file's creation or last use."""
        return time.time() - self.used

    @property
    def is_incomplete(self) -> bool:
        """Whether a process is still writing the file, or was killed while writing it."""
        return bool(_PARTIAL.search(self.path.name))


def cached_files() -> list[CachedFile]:
    """Return all files of the cache, including incomplete files, in the order of their last use. Raises OSError."""
    return sorted((entry for kind in KINDS for entry in _scan_folder(kind)), key=lambda entry: entry.used)


def remove(files: Iterable[CachedFile]) -> list[CachedFile]:
    """Remove files and return the removed files. Files that a process may still be writing are not removed.

    A process that has opened a removed file can still read it.
    """
    removed = []
    for entry in files:
        if not (entry.is_incomplete and entry.seconds < ABANDONED_SECONDS):
            with suppress(OSError):
                entry.path.unlink(missing_ok=True)
                removed.append(entry)
    return removed


def make_room() -> None:
    """Remove abandoned incomplete files, and above the size limit the least recently used files that are not in use."""
    with suppress(OSError):
        files = cached_files()
        removed = remove(entry for entry in files if entry.is_incomplete)
        excess = sum(entry.size for entry in files) - sum(entry.size for entry in removed) - size_limit()
        for entry in files:
            if excess <= 0 or entry.seconds < IN_USE_SECONDS:  # later entries are in use, too
                return
            if entry.kind.is_bounded and not entry.is_incomplete and remove([entry]):
                excess -= entry.size


def size_limit() -> int:
    """Return the limit of the cache in bytes: `$ENSUE_CACHE_LIMIT`, such as 500MB or 2.5GB, else 10GB."""
    text = os.environ.get("ENSUE_CACHE_LIMIT") or DEFAULT_LIMIT
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([KMGT]?)B?", text.strip().upper())
    if match is None:
        warn_once("bound", f"ENSUE_CACHE_LIMIT is {text!r:.40}, which is not a size like 500MB; using {DEFAULT_LIMIT}")
        return DEFAULT_LIMIT_BYTES
    return int(float(match[1]) * _UNITS[match[2]])


def json_digest(value: Any) -> str:
    """Return a digest of a JSON value, for the name of a file in the cache."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def mark_used(path: Path) -> None:
    """Mark a file as used; the least recently used files are removed first."""
    with suppress(OSError):
        os.utime(path)


def write_cached(name: str, write: Callable[[Path], object]) -> Path:
    """Write the file `name` to the cache atomically, and return its path. `write` is a function that writes to a path.

    If the cache is not writable, the file is written to a temporary folder, with a notice. Raises DataError if neither
    folder is writable.
    """
    try:
        with atomic_file(cache_directory() / name) as partial:
            write(partial)
    except OSError as error:
        try:
            with atomic_file(temporary_directory() / name) as partial:
                write(partial)
        except OSError as second:
            problem = f"cannot be written, and neither can a temporary folder ({second.strerror or second})"
            raise DataError(problem, cache_directory()) from second
        reason = f"the cache cannot be written ({error.strerror or error}): nothing is cached"
        warn_once("cache", f"{cache_directory()}: {reason}; set ENSUE_CACHE to another folder")
        return temporary_directory() / name
    make_room()
    return cache_directory() / name


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield the path of a new private file, which is renamed to `path` after the block, or removed after an error."""
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    try:
        partial.touch(0o600, exist_ok=False)
        yield partial
        partial.replace(path)
    finally:
        with suppress(OSError):
            partial.unlink()


def _scan_folder(kind: CacheKind) -> Iterator[CachedFile]:
    folder = kind.folder()
    if folder.is_symlink() and folder != cache_directory():  # a link may lead out of the cache
        return
    try:
        files = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for file in files:
        if kind.pattern.fullmatch(_PARTIAL.sub("", file.name)) and file.is_file(follow_symlinks=False):
            with suppress(OSError):  # another process may have removed the file
                if _PARTIAL.search(file.name) or not kind.prefix or _begins_with(file.path, kind.prefix):
                    status = file.stat(follow_symlinks=False)
                    yield CachedFile(Path(file.path), kind, status.st_size, status.st_mtime)


def _begins_with(path: str, prefix: bytes) -> bool:
    with open(path, "rb") as file:
        return file.read(len(prefix)) == prefix
