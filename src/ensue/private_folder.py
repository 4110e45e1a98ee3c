"""A folder that only the user can write to, for files that will be run: compiled cells, and files beside them.

Another user of the machine could prepare the folder of a cache (under /tmp, or in a folder of a group), put a link in
its place, or exchange a file between a check and its use. So the folder is opened first, the open folder is checked,
and its files are reached through it, not through its name.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ensue.notices import say_once

HAS_OWNERS = hasattr(os, "geteuid")
"""Whether files have owners. On Windows a folder in the user's home is the user's."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ONLY_THERE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)


class PrivateFolder:
    """Files under a key, each with a digest of its content in its name: `key.digest.suffix`. See `private_folder`."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path, self._descriptor = path, descriptor

    def find(self, key: str, suffix: str) -> tuple[str, bytes] | None:
        """The name and the content of the file under `key`; None if there is no complete one that is the user's."""
        for name in sorted(os.listdir(self.path if self._descriptor is None else self._descriptor)):
            if name.startswith(f"{key}.") and name.endswith(suffix):
                content = self._read(name)
                if content is not None and name == _name(key, content, suffix):
                    return name, content
                self.remove(name)  # damaged, or not the user's
        return None

    def keep(self, key: str, suffix: str, content: bytes) -> str:
        """Writes a file, complete or not at all, and returns its name. Raises OSError if that fails."""
        name = _name(key, content, suffix)
        partial = f"{name}.{secrets.token_hex(4)}.partial"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _ONLY_THERE | _BINARY
        try:
            with os.fdopen(os.open(self._at(partial), flags, 0o600, dir_fd=self._descriptor), "wb") as file:
                file.write(content)
            here = {"src_dir_fd": self._descriptor, "dst_dir_fd": self._descriptor}
            os.replace(self._at(partial), self._at(name), **here)
        finally:
            self.remove(partial)
        return name

    def remove(self, name: str) -> None:
        """Removes a file if it is there."""
        with suppress(OSError):
            os.unlink(self._at(name), dir_fd=self._descriptor)

    def way(self, name: str) -> str:
        """A path to a file, for functions that take no descriptor, such as the loader of libraries.

        Raises OSError if another user could make the path lead elsewhere.
        """
        through = f"/proc/self/fd/{self._descriptor}"
        if self._descriptor is None:
            return str(self.path / name)
        if os.path.isdir(through):
            return f"{through}/{name}"
        path = self.path.resolve()
        _check_way(path)
        if not os.path.samestat(path.stat(), os.fstat(self._descriptor)):
            raise OSError(errno.EPERM, "it was exchanged")
        return str(path / name)

    def _at(self, name: str) -> str:
        return name if self._descriptor is not None else str(self.path / name)

    def _read(self, name: str) -> bytes | None:
        try:
            descriptor = os.open(self._at(name), os.O_RDONLY | _ONLY_THERE | _BINARY, dir_fd=self._descriptor)
            with os.fdopen(descriptor, "rb") as file:
                _check(os.fstat(descriptor), stat.S_ISREG)
                with suppress(OSError):
                    os.utime(self._at(name), dir_fd=self._descriptor)  # it was used
                return file.read()
        except FileNotFoundError:  # removed meanwhile
            return None
        except OSError as error:
            say_once("private", f"{self.path / name}: not used ({error.strerror})")
            return None


@contextmanager
def private_folder(path: Path) -> Iterator[PrivateFolder]:
    """The folder `path`, made if it is not there; only the user may enter it.

    Raises OSError if it cannot be made or opened, is a link, belongs to another user, or others may write to it.
    """
    with suppress(FileExistsError):
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    if not HAS_OWNERS:
        yield PrivateFolder(path, None)
        return
    if path.is_symlink():  # the flag below holds even if it becomes one now
        raise OSError(errno.ELOOP, "it is a symbolic link")
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _ONLY_THERE)
    try:
        status = os.fstat(descriptor)
        _check(status, stat.S_ISDIR)
        if status.st_mode & 0o077:  # others may read it, which ends here
            os.fchmod(descriptor, 0o700)
        yield PrivateFolder(path, descriptor)
    finally:
        os.close(descriptor)


def _check(status: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    """Raises OSError unless it is of the kind, belongs to the user, and no other user may write to it."""
    if not is_kind(status.st_mode):
        raise OSError(errno.EINVAL, "it is something else than it should be")
    if not HAS_OWNERS:
        return
    if status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"it belongs to another user, {status.st_uid}")
    if status.st_mode & OTHERS_WRITE:
        raise OSError(errno.EPERM, f"others may write to it, its mode is {stat.S_IMODE(status.st_mode):04o}")


def _check_way(path: Path) -> None:
    """Raises OSError if another user can replace a folder on the way to `path`."""
    for folder in path.parents:
        status = folder.stat()
        is_open = status.st_mode & OTHERS_WRITE and not status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, os.geteuid()) or is_open:
            raise OSError(errno.EPERM, f"{folder} is open to others")


def _name(key: str, content: bytes, suffix: str) -> str:
    return f"{key}.{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
