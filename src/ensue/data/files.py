"""Locations of data: a file, a folder, a glob, an address of a data set, or a JSON list of several locations.

Folders and globs yield regular files only, because opening a pipe waits for a writer. Links to files are followed.
Links to folders are not followed, because they may be circular.
"""

import glob
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ensue.errors import DataError, nearest
from ensue.extension import is_address
from ensue.parsing import ParseError, check_access, files_in, matching_files, parse_json

FORMAT_OPTION = "--format (in training --set data.format=...)"
"""The option that sets the format, for messages."""
IN_OPTIONS = {FORMAT_OPTION: "--format"}
"""The replacement of `FORMAT_OPTION` in messages of `ensue data`, as an argument of `DataError`."""
_PATH = re.compile(r"\.[A-Za-z]\w{0,7}$|\*|\?\S|^(/|~[/\w]*/|\.\.?/)")
"""Matches a string that looks like a path."""
Location = str | Path | Sequence[str | Path]
"""A file, a folder, a glob or a data set (`hf:NAME`), or several of these, in order."""
Data = Location | Iterable[Any]
"""A location, or rows in memory (`ensue.data.in_memory`)."""


def as_location(locations: Data, name: str = "the data", *, is_cached: bool = False) -> str:
    """Return a string that represents one or several locations, or the path of a file to which rows are written.

    The file of rows is in the cache if `is_cached`, else removed at exit. `name` is the name of the data in messages.
    Raises TypeError for data that are neither locations nor rows.
    """
    several = list(locations) if isinstance(locations, list | tuple) else [locations]
    if not all(isinstance(location, str | os.PathLike) for location in several) or _are_texts(several):
        from ensue.data.in_memory import path_of_rows  # noqa: PLC0415  # in_memory imports this module

        return path_of_rows(locations, name, is_cached=is_cached)
    names = [name for location in several for name in locations_in(str(location))]
    return names[0] if len(names) == 1 else json.dumps(names, ensure_ascii=False) if names else ""


def _are_texts(values: Sequence[Any]) -> bool:
    """Return whether most of several values look like texts, and none of these is a path."""
    strings = [value for value in values if isinstance(value, str) and len(value.split()) > 1]
    texts = [string for string in strings if not is_address(string) and not _PATH.search(string)]
    are_most_texts = len(values) > 1 and 2 * len(texts) > len(values)
    paths = (text for text in texts if len(text) < 256 and "\0" not in text)
    return are_most_texts and not any(os.path.exists(path) or os.path.isdir(os.path.dirname(path)) for path in paths)


def locations_in(location: str | Path) -> list[str]:
    """Split a result of `as_location` into its locations."""
    text = str(location)
    if text.startswith('["') and text.endswith('"]') and not os.path.exists(text):
        with suppress(ParseError):
            names = parse_json(text)
            if isinstance(names, list) and all(isinstance(name, str) for name in names):
                return names
    return [text]


def join_locations(location: str | Path) -> str:
    """Return the locations in a result of `as_location`, separated by commas, for messages."""
    return ", ".join(locations_in(location))


def files_of(location: str | Path) -> tuple[Path, ...]:
    """Return the files at a location, without brat's settings and the texts of brat annotations (`.ann`).

    The reader of an annotation file also reads its text.
    """
    files = all_files(location)
    stems = {path.with_suffix("") for path in files if path.suffix == ".ann"}
    others = {path for path in files if path.suffix == ".conf" or (path.with_suffix("") in stems)} if stems else set()
    return tuple(path for path in files if path.suffix == ".ann" or path not in others)


def all_files(location: str | Path) -> tuple[Path, ...]:
    """Return all files at a location, or at each of several locations in order. The files of a location are sorted.

    Raises DataError if there is no file, if a file is unreadable, and if two locations have the same file.
    """
    names = locations_in(location)
    if len(names) == 1:
        return _files_at(names[0])
    owners: dict[object, int] = {}
    files: list[Path] = []
    for number, name in enumerate(names):
        for path in _files_at(name):
            key = (status.st_dev, status.st_ino) if path.exists() and (status := path.stat()).st_ino else path
            if (owner := owners.setdefault(key, number)) != number:
                raise DataError(f"is named twice, by {names[owner]} and by {name}; expected once", path)
            files.append(path)
    return tuple(files)


def _files_at(location: str) -> tuple[Path, ...]:
    with os_errors(location):
        path = check_access(expanduser(location))
        if is_address(location) or (location and path.is_file()):
            return (path,)
        if location and path.is_dir():
            if not (files := sorted(files_in(path))):
                raise DataError("no file in this folder", path)
            return tuple(files)
        if location and path.exists():
            pipe = "a pipe, which can be read only once; expected a file or a folder"
            raise DataError(pipe if path.is_fifo() else "neither a file nor a folder", location)
        if glob.has_magic(location) and not path.is_symlink():
            if files := sorted(set(matching_files(path))):
                return tuple(files)
            raise DataError("no file matches", location)
        raise DataError(_describe_missing(path), location or '""')


def expanduser(location: str | Path) -> Path:
    """Return the path with `~` expanded. Raises DataError if the home directory is unknown."""
    try:
        return Path(location).expanduser()
    except RuntimeError:
        raise DataError(f"no home directory of {Path(location).parts[0]}", location) from None


def list_visible(folder: Path) -> list[Path]:
    """Return the sorted folders and regular files in a folder, without hidden entries."""
    with os_errors(folder):
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        return [path for path in entries if path.is_dir() or path.is_file()]


def common_format(formats: Mapping[str, str]) -> str:
    """Return the format of all files, given the format of each file by its name; "" without files.

    Raises DataError if the formats differ.
    """
    first, result = next(iter(formats.items()), ("", ""))
    for name, other in formats.items():
        if other != result:
            advice = f"select files of one format by a glob, or set the format of all files by {FORMAT_OPTION}"
            raise DataError(f"looks like {other}, but {first} looks like {result}; {advice}", name, options=IN_OPTIONS)
    return result


@contextmanager
def os_errors(location: str | Path) -> Iterator[None]:
    """Raise DataError for an error of the operating system within a `with` block."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", error.filename or location) from error
    except UnicodeEncodeError:
        raise DataError("the name cannot be encoded on this system", location) from None
    except ValueError as error:  # a NUL character
        raise DataError(f"cannot be read ({error})", location) from error


def _describe_missing(path: Path) -> str:
    if path.is_symlink():
        return f"a link to {os.readlink(path)}, which does not exist"
    parent = path.parent
    if not parent.is_dir():
        return f"no such file or folder; {parent} is not a folder, either"
    try:
        names = sorted(entry.name for entry in parent.iterdir())
    except OSError:
        names = []
    return f"no such file or folder{nearest(path.name, names)}"
