"""Outputs: no file or folder that is written is one that is read, and files are complete or as they were before.

A file is the same under all of its names: links, relative paths, other cases of letters, open descriptors. A file that
is there is replaced only if ensue wrote it and nobody has changed it since, or if the user says so. The cache lists the
files that ensue wrote.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from fnmatch import fnmatch
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from ensue.cache import written_beside
from ensue.cache_folders import cache_directory, temporary_directory
from ensue.errors import DataError, EnsueError
from ensue.parsing import ParseError, parse_json

Location = str | os.PathLike[str]


class Access(Enum):
    """The use of the path that an argument or option names: it is read, written, or neither."""

    DATA = "reads a file, a folder, a glob, or several of these"
    TEXTS = "reads data; without a place stdin"
    FILE = "reads a file; a value that names none is a text or a name"
    RUN = "reads a run"
    RECIPE = "reads a recipe, and all that it names"
    SETTINGS = "reads what these keys of a recipe name"
    OUT_FILE = "writes a file"
    OUT_FOLDER = "writes a folder"


RECORD = b"ensue wrote "
"""The first bytes of the files of the cache that list what ensue wrote."""


def check_outputs(
    inputs: Iterable[Location | Sequence[Location]],
    *,
    files: Iterable[Location] = (),
    folders: Iterable[Location] = (),
    overwrite: bool = False,
    are_new: bool = False,
) -> None:
    """Check the files and folders that will be written, before anything is opened.

    Args:
        inputs: Files, folders and globs that are read; "-" is stdin. Names of other things are ignored.
        files: Files that will be written.
        folders: Folders that will be written, such as those of runs.
        overwrite: Whether files that ensue did not write, and folders, may be replaced.
        are_new: Whether the folders are new ones, unless `overwrite`.

    Raises:
        EnsueError: An output is an input, lies inside of one, or has one inside; two outputs are one file; a file has
            no folder, or is there already.
    """
    read = [name for location in inputs for name in _names(location)]
    places, written = [*map(Path, folders)], [*map(Path, files)]
    for number, out in enumerate([*places, *written]):
        for name in read:
            if how := _conflict(out, name, is_folder=number < len(places)):
                raise EnsueError(f"{out}: {how}, which is read; choose another place for what is written")
    for number, out in enumerate(written):
        if any(os.path.realpath(out) == os.path.realpath(other) for other in written[:number]) and _replaced(out):
            raise EnsueError(f"{out}: two outputs are this file; expected two names")
        check_new(out, overwrite=overwrite, makes_folder=bool(places))
    for place in places:
        if are_new and not overwrite and place.exists():
            raise EnsueError(f"{place}: is there already; --overwrite replaces it")


def check_streams(inputs: Iterable[Location | Sequence[Location]]) -> None:
    """Raises EnsueError if stdout or stderr is a file that is read."""
    read = [name for location in inputs for name in _names(location)]
    for descriptor, stream in ((1, "stdout"), (2, "stderr")):
        status = _status(descriptor)
        if status is not None and (name := next((name for name in read if _is_among(status, name)), "")):
            raise EnsueError(f"{stream}: is written to {_shown(name)}, which is read; choose another place")


def check_new(out: Location, *, overwrite: bool, makes_folder: bool = False) -> None:
    """Raises EnsueError for a file that cannot be made, or that is there already and may not be replaced."""
    path = Path(out)
    if path.is_dir():
        raise EnsueError(f"{path}: is a folder; expected the name of a file")
    if not makes_folder and not path.parent.is_dir():
        raise EnsueError(f"{path}: no folder {path.parent}")
    if not overwrite and _replaced(path) and _is_foreign(path):
        raise EnsueError(f"{path}: is there already; --overwrite replaces it")


@contextmanager
def written(out: Location) -> Iterator[Path]:
    """A new file in the folder of `out` to write to, in a `with` block. It replaces `out` at the end. If writing fails,
    it is removed. Pipes and devices are written to as they are; open descriptors, such as `/dev/stdout`, get what was
    written at the end.

    Raises DataError if the file cannot be written.
    """
    path = Path(out)
    is_file, is_open = _replaced(path), _is_open(path)
    target = Path(os.path.realpath(path))  # of a link
    folder = temporary_directory() if is_open else target.parent
    partial = folder / f".{secrets.token_hex(4)}.partial{path.suffix}" if is_file or is_open else path
    try:
        if partial != path:
            partial.open("xb").close()
        if is_file and target.exists():
            target.open("ab").close()  # raises if it may not be written
            shutil.copymode(target, partial)
        yield partial
        if is_file:
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            partial.replace(target)
        elif is_open:
            with partial.open("rb") as source, path.open("ab") as file:
                shutil.copyfileobj(source, file)
    except OSError as error:
        if isinstance(error, BrokenPipeError) or error.filename not in (None, str(partial), str(target)):
            raise
        raise DataError(f"cannot be written ({error.strerror or error})", path) from error
    finally:
        if partial != path:
            with suppress(OSError):
                partial.unlink()
    if is_file:
        with suppress(OSError), written_beside(cache_directory() / _record(target)) as record:
            record.write_bytes(RECORD + os.fsencode(target))


def write_text(out: Location, text: str) -> None:
    """Writes a text file as `written` does. Lone surrogates are written as in JSON."""
    with written(out) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


def _names(location: Location | Sequence[Location]) -> list[str]:
    """The names of files, folders and globs in a location, or in several: a list, or one in JSON."""
    if isinstance(location, list | tuple):
        return [name for each in location for name in _names(each)]
    text = os.fspath(location)  # type: ignore[arg-type]
    if text.endswith(".ann"):  # brat's text is read with it
        return [text, f"{text[:-4]}.txt"]
    if text in ("", "-") or _status(text) is not None:
        return [text] * bool(text)
    if text.startswith('["'):
        with suppress(ParseError):
            return _names([each for each in parse_json(text) if isinstance(each, str)])
    return text.split(",") if "," in text else [text]  # two files of pairs


def _conflict(out: Path, name: str, *, is_folder: bool) -> str:
    """How an output meets what is read; "" if it does not."""
    path, known = Path(os.path.expanduser(name)), _status(out)
    status, how = _status(0) if name == "-" else _status(path), ""
    if status is None:
        if glob.has_magic(name):
            if _is_matched(out, path, is_folder=is_folder) or (known is not None and _is_among(known, name)):
                how = f"is matched by {name}"
            elif known is not None and any(_lies_in(one, known) for one in glob.iglob(str(path), recursive=True)):
                how = f"has a match of {name} in it"
    elif known is not None and os.path.samestat(known, status) and (S_ISREG(known.st_mode) or S_ISDIR(known.st_mode)):
        how = f"is the same as {_shown(name)}"
    elif S_ISDIR(status.st_mode) and (_lies_in(out, status) or (known is not None and _is_among(known, name))):
        how = f"lies in {name}"
    elif name != "-" and known is not None and S_ISDIR(known.st_mode) and _lies_in(path, known):
        how = f"has {name} in it"
    return how


def _is_among(status: os.stat_result, name: str) -> bool:
    """Whether a file is one of those that a name stands for."""
    if not S_ISREG(status.st_mode):
        return False
    found = _status(0) if name == "-" else _status(path := Path(os.path.expanduser(name)))
    if found is None:
        every: Iterable[str | Path] = glob.iglob(str(path), recursive=True) if glob.has_magic(name) else ()
    elif S_ISDIR(found.st_mode):
        every = (os.path.join(folder, file) for folder, _, files in os.walk(path) for file in files)
    else:
        return os.path.samestat(found, status)
    return any((one := _status(each)) is not None and os.path.samestat(one, status) for each in every)


def _lies_in(path: Location, folder: os.stat_result) -> bool:
    """Whether a path, or the file behind it if it is a link, lies in a folder."""
    above = {parent for one in (os.path.abspath(path), os.path.realpath(path)) for parent in Path(one).parents}
    return any((one := _status(parent)) is not None and os.path.samestat(one, folder) for parent in above)


def _is_matched(out: Path, pattern: Path, *, is_folder: bool) -> bool:
    """Whether a glob matches a path; for a folder also if it can match what is in it."""
    parts = Path(os.path.abspath(pattern)).parts
    count = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    base = Path(*parts[:count])
    for folder in {base, Path(os.path.realpath(base))}:
        for path in {Path(os.path.abspath(out)), Path(os.path.realpath(out))}:
            if path.is_relative_to(folder) and _match(path.relative_to(folder).parts, parts[count:], is_folder):
                return True
    return False


def _match(parts: Sequence[str], pattern: Sequence[str], is_folder: bool) -> bool:
    if not parts or not pattern:
        return not parts and (is_folder or not pattern)
    if pattern[0] == "**":
        return len(pattern) == 1 or any(_match(parts[n:], pattern[1:], is_folder) for n in range(len(parts) + 1))
    return fnmatch(parts[0], pattern[0]) and _match(parts[1:], pattern[1:], is_folder)


def _status(path: Location | int) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):  # the second for a NUL character
        return None


def _shown(name: str) -> str:
    return "stdin" if name == "-" else name


def _replaced(path: Path) -> bool:
    """Whether a path is a file or nothing yet: no pipe, no device, no open descriptor."""
    status = _status(path)
    return not _is_open(path) and (status is None or S_ISREG(status.st_mode))


def _is_open(path: Path) -> bool:
    """Whether a path names an open descriptor."""
    return os.path.abspath(path).startswith(("/dev/std", "/dev/fd/", "/proc/"))


def _is_foreign(path: Path) -> bool:
    """Whether a file has a content that ensue did not write, or that was changed since."""
    status = _status(path)
    return status is not None and status.st_size > 0 and not (cache_directory() / _record(path)).exists()


def _record(path: Path) -> str:
    """The name in the cache for a file as it is now."""
    status = os.stat(path)
    key = [os.path.realpath(path), status.st_ino, status.st_size, status.st_mtime_ns]
    return hashlib.sha256(json.dumps(key).encode(errors="surrogateescape")).hexdigest()[:32] + ".output"
