"""`manifest.json`: size and checksum of the files beside it, which show that a file was cut off or edited.

A file is replaced in three steps: the manifest lists the new file, the file is renamed into place, the manifest drops
the old one. So every file is listed at any time, also for a process that reads meanwhile, and after a kill.
`metrics.jsonl` grows; a checkpoint's manifest has its checksum at that time.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ensue.parsing import read_bounded
from ensue.runs.schema import MANIFEST, MAX_MANIFEST, DamagedError, Entry, ManifestContent, checked, parsed, told
from ensue.runs.weights import flush, write_text


class Manifest:
    """The manifest of `directory`. One process at a time writes; any number may read meanwhile."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.path = directory, directory / MANIFEST

    def content(self) -> ManifestContent:
        """The content of `manifest.json`. Raises RunError if it cannot be read."""
        with told(self.path):
            content = parsed(read_bounded(self.path, MAX_MANIFEST))
        found: ManifestContent = checked(ManifestContent, content, self.path)
        return found

    def check(self, name: str) -> Path:
        """The path of the file of that name. Raises RunError unless its content is what was written."""
        path = self.directory / name
        for attempt in range(2):  # the second one for a file that another process replaces meanwhile
            content = self.content()
            known = [found for found in (content.files.get(name), content.coming.get(name)) if found]
            if not known:
                raise DamagedError(f"{path}: not of this run: {self.path.name} does not name it")
            size, digest = _measured(path, known)
            if any((entry.bytes, entry.sha256) == (size, digest) for entry in known):
                return path
            if attempt:
                raise altered(path, known[0], size)
        raise AssertionError

    def read(self, name: str) -> bytes:
        """The content of the file of that name, checked by `check`."""
        return self.check(name).read_bytes()

    def holds(self, name: str, entry: Entry) -> bool:
        """Whether there is a file of that name with this content."""
        found = self.entries().get(name)
        return found is not None and found.sha256 == entry.sha256 and _is(self.directory / name, entry)

    def replace(self, partials: Mapping[str, Path], *, log: Entry | None = None) -> None:
        """Replaces files: `partials` has the new content of each name, as a file in the same directory."""
        files = self.entries()
        coming = {name: entry_of(partial) for name, partial in partials.items()}
        for name, new in coming.items():  # the same content keeps the time of its first writing
            if name in files and files[name].sha256 == new.sha256:
                coming[name] = files[name]
        self.write(ManifestContent(files=files, coming=coming))
        for name, partial in partials.items():
            partial.replace(self.directory / name)
        flush(self.directory)
        self.write(ManifestContent(files=files | coming, log=log))

    def write(self, content: ManifestContent) -> None:
        """Writes the manifest, complete or not at all."""
        write_text(self.path, content.model_dump_json(indent=2, exclude_defaults=True) + "\n")
        flush(self.directory)

    def entries(self) -> dict[str, Entry]:
        """The entries of the files as they are, also after a kill between the steps of `replace`."""
        if not self.path.exists():
            return {}
        content = self.content()
        come = {name: new for name, new in content.coming.items() if _is(self.directory / name, new)}
        return content.files | come


def entry_of(path: Path, size: int | None = None) -> Entry:
    """The entry of a file as it is now, or of its first `size` bytes."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256") if size is None else hashlib.sha256(file.read(size))
        length = file.tell()
    return Entry(bytes=length, sha256=digest.hexdigest(), written=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}")


def _measured(path: Path, known: list[Entry]) -> tuple[int, str]:
    """Size and checksum of a file; the checksum is "" if no known entry has this size."""
    with told(path):
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise DamagedError(f"{path}: not a file")
        if all(entry.bytes != found.st_size for entry in known):
            return found.st_size, ""
        with path.open("rb") as file:
            return found.st_size, hashlib.file_digest(file, "sha256").hexdigest()


def _is(path: Path, entry: Entry) -> bool:
    return path.exists() and _measured(path, [entry]) == (entry.bytes, entry.sha256)


def altered(path: Path, entry: Entry, size: int) -> DamagedError:
    """The error for a file that is not what its entry says."""
    changed = f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d %H:%M:%S}"
    what = f"damaged: {size:,} bytes, not {entry.bytes:,}" if size < entry.bytes else "altered since it was written"
    return DamagedError(f"{path}: {what} (written {entry.written}, changed {changed} UTC); put it back as it was")
