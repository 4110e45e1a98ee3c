"""The files that a location names: a file, the files of a folder, or the matches of a glob. None is read here.

Several locations are one location, too: their list in JSON. So they pass through recipes, keys and messages as a text.

A data set (`hf:NAME`) stands for itself, as if it were one file.

Only regular files are taken from folders and globs: opening a pipe waits for somebody to write. Links to files are
followed; links to folders are not, where folders are gone through, since they may lead back to themselves.
"""

from __future__ import annotations

import fnmatch
import glob
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ensue.arguments import check_path
from ensue.data.row_files import DatasetName
from ensue.errors import DataError, nearest
from ensue.parsing import ParseError, asked, parse_json

FORMAT_OPTION = "--format (in training --set data.format=...)"
"""Where the user says what the format is."""
IN_OPTIONS = {FORMAT_OPTION: "--format"}
"""The option of `ensue data` in its place; see `DataError`."""


Location = str | Path | Sequence[str | Path]
"""A file, a folder, a glob or a data set (`hf:NAME`), or several of these, in order."""


def one_location(locations: Location, name: str = "the data") -> str:
    """One location in place of several. Raises TypeError for a value that is no path, where `name` stands for it."""
    several = list(locations) if isinstance(locations, list | tuple) else [locations]
    for each in several:
        check_path(name, each)
    names = [name for each in several for name in locations_in(str(each))]
    return names[0] if len(names) == 1 else json.dumps(names, ensure_ascii=False) if names else ""


def locations_in(location: str | Path) -> list[str]:
    """The locations of which a location consists, by `one_location`."""
    text = str(location)
    if text.startswith('["') and text.endswith('"]') and not os.path.exists(text):
        with suppress(ParseError):
            names = parse_json(text)
            if isinstance(names, list) and all(isinstance(name, str) for name in names):
                return names
    return [text]


def named_locations(location: str | Path) -> str:
    """The locations for a person."""
    return ", ".join(locations_in(location))


def files_of(location: str | Path) -> tuple[Path, ...]:
    """The files that `location` names, as `all_files` has them; beside brat's annotations (`.ann`) without their texts,
    which are read with them, and its settings.
    """
    files = all_files(location)
    stems = {path.with_suffix("") for path in files if path.suffix == ".ann"}
    others = {path for path in files if path.suffix == ".conf" or (path.with_suffix("") in stems)} if stems else set()
    return tuple(path for path in files if path.suffix == ".ann" or path not in others)


def all_files(location: str | Path) -> tuple[Path, ...]:
    """The files that `location` names; those of each location in it are sorted.

    Raises DataError if there is none, if the system refuses, or if two locations have a file in common.
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
    with readable(location):
        path = asked(expanded(location))
        if DatasetName.parse(location) or (location and path.is_file()):
            return (path,)
        if location and path.is_dir():
            if not (files := sorted(_regular(path))):
                raise DataError("no file in this folder", path)
            return tuple(files)
        if location and path.exists():
            raise DataError(_what_it_is(path), location)
        if glob.has_magic(location) and not path.is_symlink():
            return _matches(location, path)
        raise DataError(_missing(path), location or '""')


def expanded(location: str | Path) -> Path:
    """The path, with the home directory for `~`. Raises DataError if there is no home directory."""
    try:
        return Path(location).expanduser()
    except RuntimeError:
        raise DataError(f"no home is known for {Path(location).parts[0]}", location) from None


def visible(folder: Path) -> list[Path]:
    """The folders and regular files in a folder, sorted, without hidden ones."""
    with readable(folder):
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        return [path for path in entries if path.is_dir() or path.is_file()]


def common_format(formats: Mapping[str, str]) -> str:
    """The format of files that are read together, from the format that each of them (by its name) looks like; "" for no
    file.

    Raises DataError if they look like two formats.
    """
    first, found = next(iter(formats.items()), ("", ""))
    for name, other in formats.items():
        if other != found:
            advice = f"a glob chooses some, or {FORMAT_OPTION} says what all are"
            raise DataError(f"it looks like {other}, but {first} like {found}; {advice}", name, options=IN_OPTIONS)
    return found


@contextmanager
def readable(location: str | Path) -> Iterator[None]:
    """Turns errors of the system about a path into a DataError that names it."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", error.filename or location) from error
    except UnicodeEncodeError:
        raise DataError("a name that this system cannot write", location) from None
    except ValueError as error:  # a NUL character
        raise DataError(f"cannot be read ({error})", location) from error


def _regular(folder: Path) -> Iterator[Path]:
    """The regular files of a folder and of those in it, without hidden ones."""
    for parent, names in _walk(folder):
        yield from (path for name in names if (path := parent / name).is_file())


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """A folder and those in it, without hidden ones, each with the names in it that are no folders."""
    for parent, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield Path(parent), [name for name in names if not name.startswith(".")]


def _raise(error: OSError) -> None:
    raise error


def _matches(location: str | Path, pattern: Path) -> tuple[Path, ...]:
    files = sorted(set(_expand(Path(pattern.anchor), pattern.parts[bool(pattern.anchor) :])))
    if not files:
        raise DataError("no file matches", location)
    return tuple(files)


def _expand(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """The regular files that match the parts of a pattern below a folder; `**` stands for any number of folders."""
    asked(folder)
    if not parts:
        if folder.is_file():
            yield folder
    elif not glob.has_magic(parts[0]):
        yield from _expand(folder / parts[0], parts[1:])
    elif not folder.is_dir():
        return
    elif parts[0] != "**":
        hidden = parts[0].startswith(".")
        names = [name for name in os.listdir(folder) if name.startswith(".") == hidden]
        for name in fnmatch.filter(names, parts[0]):
            yield from _expand(folder / name, parts[1:])
    elif len(parts) == 1:
        yield from _regular(folder)
    else:
        for below, _ in _walk(folder):
            yield from _expand(below, parts[1:])


def _what_it_is(path: Path) -> str:
    if path.is_fifo():
        return "a pipe, which can be read only once; expected a file or a folder"
    return "neither a file nor a folder"


def _missing(path: Path) -> str:
    """The message for a path that does not exist, with the nearest name in its folder."""
    if path.is_symlink():
        return f"a link to {os.readlink(path)}, which is not there"
    parent = path.parent
    if not parent.is_dir():
        return f"no such file or folder, nor its folder {parent}"
    try:
        names = sorted(entry.name for entry in parent.iterdir())
    except OSError:
        names = []
    return f"no such file or folder{nearest(path.name, names)}"
