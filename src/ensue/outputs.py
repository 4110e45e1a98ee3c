"""Checks that no output overwrites an input, and atomic writing of files.

Files are compared by identity, since links, relative paths, letter cases and open descriptors can name the same file.
An existing file is replaced only with `overwrite`, if empty, or if the cache records its state as written by ensue.
"""

import csv
import glob
import io
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from fnmatch import fnmatch
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

from ensue.cache import atomic_file, cache_directory, json_digest, temporary_directory
from ensue.errors import DataError, EnsueError
from ensue.parsing import ParseError, matching_files, parse_json

Location = str | os.PathLike[str]


class Access(Enum):
    """How a command uses the path in an argument or option."""

    DATA = "reads a file, a folder, a glob, or several of these"
    TEXTS = "reads data, by default from stdin"
    FILE = "reads a file; a value that is not a path is a text or a name"
    RUN = "reads a run"
    RECIPE = "reads a recipe and the files named in the recipe"
    SETTINGS = "reads the files named in settings of a recipe"
    OUT_FILE = "writes a file"
    OUT_FOLDER = "writes a folder"


RECORD = b"ensue wrote "
"""The first bytes of a cache file that records an output."""


def check_outputs(
    inputs: Iterable[Location | Sequence[Location]], *, files: Iterable[Location] = (),
    folders: Iterable[Location] = (), overwrite: bool = False, are_new: bool = False,
) -> None:  # fmt: skip
    """Check the files and folders that will be written, before anything is opened.

    `inputs` are files, folders and globs that are read; "-" is stdin, and texts that are not paths are ignored. With
    `overwrite`, existing folders, and files that ensue did not write, may be replaced; without `overwrite`, an existing
    folder is an error if `are_new`. Raises EnsueError for an output that is an input, is inside of an input or contains
    an input, for two equal outputs, a missing folder, and a file that may not be replaced.
    """
    names = [name for location in inputs for name in _split(location)]
    out_folders, out_files = [*map(Path, folders)], [*map(Path, files)]
    for index, out in enumerate([*out_folders, *out_files]):
        for name in names:
            if conflict := _conflict(out, name, is_folder=index < len(out_folders)):
                raise EnsueError(f"{out}: {conflict}, which is read; choose another place for the output")
    for index, out in enumerate(out_files):
        if any(os.path.realpath(out) == os.path.realpath(file) for file in out_files[:index]) and _is_replaceable(out):
            raise EnsueError(f"{out}: two outputs are this file; expected two names")
        check_new(out, overwrite=overwrite, makes_folder=bool(out_folders))
    for out in out_folders:
        if are_new and not overwrite and out.exists():
            raise EnsueError(f"{out}: exists; --overwrite replaces it")


def check_streams(inputs: Iterable[Location | Sequence[Location]]) -> None:
    """Raise EnsueError if stdout or stderr is redirected to an input."""
    names = [name for location in inputs for name in _split(location)]
    for descriptor, stream in ((1, "stdout"), (2, "stderr")):
        status = _stat(descriptor)
        if status is not None and (name := next((name for name in names if _contains(name, status)), "")):
            raise EnsueError(f"{stream}: is written to {_describe(name)}, which is read; choose another place")


def check_new(out: Location, *, overwrite: bool, makes_folder: bool = False) -> None:
    """Raise EnsueError for a folder, a file that may not be replaced or, unless `makes_folder`, a missing folder."""
    path = Path(out)
    if path.is_dir():
        raise EnsueError(f"{path}: is a folder; expected the name of a file")
    if not makes_folder and not path.parent.is_dir():
        raise EnsueError(f"{path}: no folder {path.parent}")
    status = _stat(path)
    is_foreign = status is not None and status.st_size > 0 and not (cache_directory() / _record_name(path)).exists()
    if not overwrite and _is_replaceable(path) and is_foreign:
        raise EnsueError(f"{path}: exists; --overwrite replaces it")


@contextmanager
def atomic_output(out: Location) -> Iterator[Path]:
    """Yield the path of a temporary file, which replaces `out` at the end of a `with` block unless an error is raised.

    If `out` is a pipe or a device, yield `out` itself. If `out` is an open descriptor, such as `/dev/stdout`, append
    the temporary file to it. Raises DataError if the file cannot be written.
    """
    path = Path(out)
    is_file, is_open = _is_replaceable(path), _is_open(path)
    target = Path(os.path.realpath(path))  # keeps a symbolic link
    folder = temporary_directory() if is_open else target.parent
    partial = folder / f".{secrets.token_hex(4)}.partial{path.suffix}" if is_file or is_open else path
    try:
        if partial != path:
            partial.open("xb").close()
        if is_file and target.exists():
            target.open("ab").close()  # raises OSError if the file is read-only
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
        with suppress(OSError), atomic_file(cache_directory() / _record_name(target)) as record:
            record.write_bytes(RECORD + os.fsencode(target))


def write_text(out: Location, text: str) -> None:
    """Write a text file by `atomic_output`. Lone surrogates are escaped as in JSON."""
    with atomic_output(out) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


ROW_FORMATS = ("csv", "jsonl", "tsv")
"""The formats of rows, which are also the suffixes of their files."""


def row_format(out: Location) -> str:
    """Return the format of rows for the suffix of a file. Raises EnsueError for another suffix."""
    name = Path(out).suffix.lower().removeprefix(".")
    if name not in ROW_FORMATS:
        raise EnsueError(f"{os.fspath(out)}: expected a name that ends in .{', .'.join(ROW_FORMATS)}")
    return name


def row_lines(format: str, rows: Iterable[Mapping[str, Any]], columns: Iterable[str] = ()) -> Iterator[str]:
    """Yield rows in one of the `ROW_FORMATS`. Tables begin with a header: `columns`, or the keys of the first row."""
    header = [*columns]
    if header and format != "jsonl":
        yield delimited_line(format, header)
    for row in rows:
        if format == "jsonl":
            yield json.dumps(row, ensure_ascii=False) + "\n"
            continue
        if not header:
            header = [*row]
            yield delimited_line(format, header)
        yield delimited_line(format, [row.get(name) for name in header])


def delimited_line(format: str, values: Iterable[Any]) -> str:
    """Return the line of a table, "csv" or "tsv"; lists and dicts become JSON."""
    cells = [json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value for value in values]
    if format == "tsv":
        return "\t".join("" if cell is None else " ".join(str(cell).split()) for cell in cells) + "\n"
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerow(cells)
    return file.getvalue()


def _split(location: Location | Sequence[Location]) -> list[str]:
    """Return the files, folders and globs of a location, which may be a list, or a list in JSON."""
    if isinstance(location, list | tuple):
        return [name for item in location for name in _split(item)]
    text = os.fspath(location)  # type: ignore[arg-type]
    if text.endswith(".ann"):  # brat's annotations are read with their text
        return [text, f"{text[:-4]}.txt"]
    if text in ("", "-") or _stat(text) is not None:
        return [text] * bool(text)
    if text.startswith('["'):
        with suppress(ParseError):
            return _split([item for item in parse_json(text) if isinstance(item, str)])
    return text.split(",") if "," in text else [text]  # SOURCE,TARGET: two files of pairs


def _conflict(out: Path, name: str, *, is_folder: bool) -> str:
    """Return how an output and an input overlap, as a predicate; "" if they do not overlap."""
    path, out_status = Path(os.path.expanduser(name)), _stat(out)
    status = _stat(0) if name == "-" else _stat(path)
    if status is None:
        if glob.has_magic(name):
            if _is_matched(out, path, is_folder=is_folder) or (out_status and _contains(name, out_status)):
                return f"is matched by {name}"
            if out_status and any(_is_inside(match, out_status) for match in _matches(path)):
                return f"contains a match of {name}"
    elif out_status and os.path.samestat(out_status, status) and (S_ISREG(status.st_mode) or S_ISDIR(status.st_mode)):
        return f"is the same as {_describe(name)}"
    elif S_ISDIR(status.st_mode) and (_is_inside(out, status) or (out_status and _contains(name, out_status))):
        return f"is inside of {name}"
    elif name != "-" and out_status and S_ISDIR(out_status.st_mode) and _is_inside(path, out_status):
        return f"contains {name}"
    return ""


def _contains(name: str, status: os.stat_result) -> bool:
    """Return whether a regular file is the file `name`, matches the glob, or is in the folder."""
    if not S_ISREG(status.st_mode):
        return False
    named = _stat(0) if name == "-" else _stat(path := Path(os.path.expanduser(name)))
    if named is None:
        paths: Iterable[str | Path] = _matches(path) if glob.has_magic(name) else ()
    elif S_ISDIR(named.st_mode):
        paths = (os.path.join(folder, file) for folder, _, files in os.walk(path) for file in files)
    else:
        return os.path.samestat(named, status)
    return any((other := _stat(path)) is not None and os.path.samestat(other, status) for path in paths)


def _matches(pattern: Path) -> Iterator[Path]:
    """Yield the files that match a glob, until a folder cannot be read. The reader of the data reports that error."""
    with suppress(OSError):
        yield from matching_files(pattern)


def _is_inside(path: Location, folder: os.stat_result) -> bool:
    parents = {*Path(os.path.abspath(path)).parents, *Path(os.path.realpath(path)).parents}
    return any((status := _stat(parent)) is not None and os.path.samestat(status, folder) for parent in parents)


def _is_matched(out: Path, pattern: Path, *, is_folder: bool) -> bool:
    """Return whether a glob matches a path, or could match a file in a folder at this path."""
    names = Path(os.path.abspath(pattern)).parts
    count = next(index for index, name in enumerate(names) if glob.has_magic(name))
    base = Path(*names[:count])
    for folder in {base, Path(os.path.realpath(base))}:
        for path in {Path(os.path.abspath(out)), Path(os.path.realpath(out))}:
            if path.is_relative_to(folder) and _match(path.relative_to(folder).parts, names[count:], is_folder):
                return True
    return False


def _match(names: Sequence[str], pattern: Sequence[str], is_folder: bool) -> bool:
    if not names or not pattern:
        return not names and (is_folder or not pattern)
    if pattern[0] == "**":
        return len(pattern) == 1 or any(_match(names[n:], pattern[1:], is_folder) for n in range(len(names) + 1))
    return fnmatch(names[0], pattern[0]) and _match(names[1:], pattern[1:], is_folder)


def _stat(path: Location | int) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):  # ValueError for a NUL character
        return None


def _describe(name: str) -> str:
    return "stdin" if name == "-" else name


def _is_replaceable(path: Path) -> bool:
    """Return whether a path is a regular file or does not exist, and so is not a pipe, device or open descriptor."""
    status = _stat(path)
    return not _is_open(path) and (status is None or S_ISREG(status.st_mode))


def _is_open(path: Path) -> bool:
    return os.path.abspath(path).startswith(("/dev/std", "/dev/fd/", "/proc/"))


def _record_name(path: Path) -> str:
    """Return the name of the cache file that records this state of a file."""
    status = os.stat(path)
    return json_digest([os.path.realpath(path), status.st_ino, status.st_size, status.st_mtime_ns]) + ".output"
