"""A folder that only the user can write to, for compiled code that is loaded and executed.

Another user of the machine could create the folder first (under /tmp, or in a folder of a group), replace the folder by
a link, or replace a file between a check and its use. So the folder is opened and then checked, and its files are
opened relative to the folder's descriptor.
"""

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ensue.notices import warn_once

HAS_OWNERS = hasattr(os, "geteuid")
"""Whether files have owners. On Windows they do not, but a folder in the user's home is private."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_SAFE_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)


class PrivateFolder:
    """Files named `key.digest.suffix`, where `digest` is a digest of the content. `private_folder` opens the folder."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path, self._descriptor = path, descriptor

    def find(self, key: str, suffix: str) -> tuple[str, bytes] | None:
        """Return the name and the content of the file of a key; None if the user has no complete file of the key."""
        for name in sorted(os.listdir(self.path if self._descriptor is None else self._descriptor)):
            if name.startswith(f"{key}.") and name.endswith(suffix):
                content = self._read(name)
                if content is not None and name == _file_name(key, content, suffix):
                    return name, content
                self.remove(name)  # a damaged file, or a file of another user
        return None

    def write(self, key: str, suffix: str, content: bytes) -> str:
        """Write a file, completely or not at all, and return its name. Raises OSError if the file cannot be written."""
        name = _file_name(key, content, suffix)
        partial = f"{name}.{secrets.token_hex(4)}.partial"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS | _BINARY
        try:
            with os.fdopen(os.open(self._path(partial), flags, 0o600, dir_fd=self._descriptor), "wb") as file:
                file.write(content)
            os.replace(self._path(partial), self._path(name), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        finally:
            self.remove(partial)
        return name

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        with suppress(OSError):
            os.unlink(self._path(name), dir_fd=self._descriptor)

    def open_path(self, name: str) -> str:
        """Return a path to a file, for functions without a descriptor argument, such as the loader of libraries.

        Raises OSError if another user could replace a folder of the path.
        """
        if self._descriptor is None:
            return str(self.path / name)
        descriptor_path = f"/proc/self/fd/{self._descriptor}"
        if os.path.isdir(descriptor_path):
            return f"{descriptor_path}/{name}"
        path = self.path.resolve()
        # another user must not be able to replace a folder above `path`
        for folder in path.parents:
            status = folder.stat()
            is_writable = status.st_mode & OTHERS_WRITE and not status.st_mode & stat.S_ISVTX
            if status.st_uid not in (0, os.geteuid()) or is_writable:
                raise OSError(errno.EPERM, f"{folder} is open to others")
        if not os.path.samestat(path.stat(), os.fstat(self._descriptor)):
            raise OSError(errno.EPERM, "the folder was replaced")
        return str(path / name)

    def _path(self, name: str) -> str:
        return name if self._descriptor is not None else str(self.path / name)

    def _read(self, name: str) -> bytes | None:
        try:
            descriptor = os.open(self._path(name), os.O_RDONLY | _SAFE_FLAGS | _BINARY, dir_fd=self._descriptor)
            with os.fdopen(descriptor, "rb") as file:
                _check_owner(os.fstat(descriptor), stat.S_ISREG)
                with suppress(OSError):
                    os.utime(self._path(name), dir_fd=self._descriptor)  # marks the file as used
                return file.read()
        except FileNotFoundError:  # another process has removed the file
            return None
        except OSError as error:
            warn_once("private", f"{self.path / name}: not used ({error.strerror})")
            return None


@contextmanager
def private_folder(path: Path) -> Iterator[PrivateFolder]:
    """Open the folder `path` with access for the user alone. A missing folder is created.

    Raises OSError if the folder cannot be opened, is a link, belongs to another user, or if others may write to it.
    """
    with suppress(FileExistsError):
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    if not HAS_OWNERS:
        yield PrivateFolder(path, None)
        return
    if path.is_symlink():  # if the link is made after this check, O_NOFOLLOW fails
        raise OSError(errno.ELOOP, "it is a symbolic link")
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFE_FLAGS)
    try:
        status = os.fstat(descriptor)
        _check_owner(status, stat.S_ISDIR)
        if status.st_mode & 0o077:  # others may read the folder
            os.fchmod(descriptor, 0o700)
        yield PrivateFolder(path, descriptor)
    finally:
        os.close(descriptor)


def _check_owner(status: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    """Raise OSError unless a file has the kind, belongs to the user, and is writable for the user alone."""
    if not is_kind(status.st_mode):
        raise OSError(errno.EINVAL, "it is of another type")
    if not HAS_OWNERS:
        return
    if status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"it belongs to another user, {status.st_uid}")
    if status.st_mode & OTHERS_WRITE:
        raise OSError(errno.EPERM, f"others may write to it, its mode is {stat.S_IMODE(status.st_mode):04o}")


def _file_name(key: str, content: bytes, suffix: str) -> str:
    return f"{key}.{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
