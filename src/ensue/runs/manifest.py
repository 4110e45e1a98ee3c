"""`manifest.json`: sizes and checksums of files, to detect truncated and edited files.

A file is replaced in three steps: the manifest lists the new file, the file is renamed into place, the manifest drops
the old file. So every file is listed at any time, for concurrent readers and after a kill. `metrics.jsonl` grows during
training, so its checksum at the time of a checkpoint is in the manifest of the checkpoint.
"""

import hashlib
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ensue.parsing import read_bounded
from ensue.runs.schema import MANIFEST, DamagedError, FileEntry, ManifestContent, convert_read_errors, read_manifest
from ensue.runs.weights import flush, write_text


class Manifest:
    """The manifest of `directory`. One process writes the manifest, and any number of processes read it."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.path = directory, directory / MANIFEST

    def content(self) -> ManifestContent:
        """Return the content of `manifest.json`. Raises RunError if it cannot be read."""
        return read_manifest(self.path)

    def check(self, name: str) -> Path:
        """Return the path of a file. Raises RunError unless its content matches the manifest."""
        path = self.directory / name
        for attempt in range(2):  # the second attempt is for a file that another process was replacing
            content = self.content()
            entries = [entry for entry in (content.files.get(name), content.coming.get(name)) if entry]
            if not entries:
                raise DamagedError(f"{path}: not a file of this run: {self.path.name} does not list it")
            size, digest = _measure(path, entries)
            if any((entry.bytes, entry.sha256) == (size, digest) for entry in entries):
                return path
            if attempt:
                raise altered_error(path, entries[0], size)
        raise AssertionError

    def read(self, name: str) -> bytes:
        """Return the content of a file. Raises RunError unless it matches the manifest, and above MAX_FILE_BYTES."""
        path = self.check(name)
        with convert_read_errors(path):
            return read_bounded(path)

    def holds(self, name: str, entry: FileEntry) -> bool:
        """Return whether the file `name` and its entry have the content of `entry`."""
        listed = self.entries().get(name)
        return listed is not None and listed.sha256 == entry.sha256 and _matches(self.directory / name, entry)

    def replace(self, partials: Mapping[str, Path], *, log: FileEntry | None = None) -> None:
        """Replace files. `partials` has for each name the path of a file in the same directory with the new content."""
        files = self.entries()
        coming = {name: entry_of(partial) for name, partial in partials.items()}
        for name, new in coming.items():  # a file with equal content keeps its entry, and so its date
            if name in files and files[name].sha256 == new.sha256:
                coming[name] = files[name]
        self.write(ManifestContent(files=files, coming=coming))
        for name, partial in partials.items():
            partial.replace(self.directory / name)
        flush(self.directory)
        self.write(ManifestContent(files=files | coming, log=log))

    def write(self, content: ManifestContent) -> None:
        write_text(self.path, content.model_dump_json(indent=2, exclude_defaults=True) + "\n")
        flush(self.directory)

    def entries(self) -> dict[str, FileEntry]:
        """Return the entries of the files on disk, even after a kill between the steps of `replace`."""
        if not self.path.exists():
            return {}
        content = self.content()
        renamed = {name: new for name, new in content.coming.items() if _matches(self.directory / name, new)}
        return content.files | renamed


def entry_of(path: Path, size: int | None = None) -> FileEntry:
    """Return the entry of a file, or of its first `size` bytes."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256") if size is None else hashlib.sha256(file.read(size))
        length = file.tell()
    return FileEntry(bytes=length, sha256=digest.hexdigest(), written=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}")


def _measure(path: Path, entries: list[FileEntry]) -> tuple[int, str]:
    """Return the size and the checksum of a file; the checksum is "" if no entry has this size."""
    with convert_read_errors(path):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise DamagedError(f"{path}: not a file")
        if all(entry.bytes != status.st_size for entry in entries):
            return status.st_size, ""
        with path.open("rb") as file:
            return status.st_size, hashlib.file_digest(file, "sha256").hexdigest()


def _matches(path: Path, entry: FileEntry) -> bool:
    return path.exists() and _measure(path, [entry]) == (entry.bytes, entry.sha256)


def altered_error(path: Path, entry: FileEntry, size: int) -> DamagedError:
    """Return the error for a file that differs from its entry."""
    changed = f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d %H:%M:%S}"
    problem = f"damaged: {size:,} bytes, not {entry.bytes:,}" if size < entry.bytes else "altered since it was written"
    return DamagedError(f"{path}: {problem} (written {entry.written}, changed {changed} UTC); restore the file")
