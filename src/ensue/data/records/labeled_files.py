"""The files of labeled data, or the lines of a stream, and the format or layout that each of them shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ensue.data.decoding import checked_encoding
from ensue.data.files import Location, common_format, files_of, one_location
from ensue.data.lines import Lines, is_blank
from ensue.data.records.record import sample
from ensue.data.sources import digest_of
from ensue.errors import DataError

Found = TypeVar("Found")
_SEAM = re.compile(r"\A\s*\]\s*\[")
"""Matches the end of an array and the beginning of the next one."""


class LabeledFiles:
    """The files of a location, one after another, or lines, which can be read once. A single file is opened only once
    for finding its format and for the first reading.

    `paths` are some of the files of the location, by default all. `encoding_of` says the encoding of a file that
    declares it. `nested`: spans may overlap.
    """

    def __init__(
        self,
        location: Location | Lines,
        encoding: str,
        *,
        paths: Sequence[Path] | None = None,
        encoding_of: Callable[[Path, str], str] = lambda path, encoding: encoding,
        nested: bool = False,
    ) -> None:
        self.encoding, self._nested = checked_encoding(encoding), nested
        self._encoding_of = encoding_of
        self._waiting: Lines | None = None
        self._first: Lines | None = None
        self.paths: tuple[Path, ...] = ()
        if isinstance(location, Lines):
            self.location, self._waiting = location.name, location
        else:
            self.location = one_location(location)
            self.paths = files_of(self.location) if paths is None else tuple(paths)

    def __len__(self) -> int:
        return max(1, len(self.paths))

    def __iter__(self) -> Iterator[Lines]:
        """The lines of each file, which may have been looked at but are all still to be read."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._first = waiting
            yield waiting
            if not self.paths:
                self._waiting = waiting  # a stream goes on, wherever it was left
            return
        for path in self.paths:
            lines = self._lines(path)
            self._first = lines if path == self.paths[0] else self._first
            yield lines

    def _lines(self, path: Path) -> Lines:
        return Lines.of(path, encoding=self._encoding_of(path, self.encoding), nested=self._nested)

    def keep(self, lines: Lines) -> None:
        """Keeps the lines of the only file, which have been looked at, for the next reading."""
        if len(self) == 1:
            self._waiting = lines

    def formats(
        self, find: Callable[[Lines, Found | None], Found], name_of: Callable[[Found], str], *, arrays: bool = True
    ) -> dict[str, Found]:
        """By the name of each file the format, or the layout, that `find` finds in its lines; `find` is also told that
        of the first file. With `arrays`, a file may be a JSON array.

        A file that is blank does not count, unless it is the only one. Raises DataError for files of two formats.
        """
        found: dict[str, Found] = {}
        for lines in self:
            if arrays:
                lines.split_array()
            if len(self) == 1 or not all(is_blank(line) for _, line in sample(lines)):
                found[lines.name] = find(lines, next(iter(found.values()), None))
                common_format({name: name_of(each) for name, each in found.items()})
            self.keep(lines)
        return found

    def check_text(self) -> None:
        """Raises DataError if there is no character in any file."""
        if not self.paths:
            return
        for lines in self:
            self.keep(lines)
            if not lines.is_empty():
                return
        raise DataError("the text is empty", self.location)

    def no_text(self) -> DataError:
        """The mistake of files that are all blank."""
        return DataError(f"{self.location}: no text in any of {len(self):,} files; all are blank")

    def as_one(self, records: Iterable[str], *, are_objects: bool, begins: bool = True) -> Iterator[str]:
        """The written records of all files as one file: with the byte order mark of the first file, if they are its
        beginning, and one JSON array for several. Raises DataError if only some of the files are arrays.
        """
        if are_objects:
            self._check_arrays()
        held = ""
        for number, record in enumerate(records):
            text = held + record
            if number == 0 and begins and self._first is not None:
                yield self._first.mark
            held = ""
            if are_objects:
                text = _SEAM.sub(",", text)
                body = text.rstrip()
                body = body[:-1].rstrip() if body.endswith("]") else text
                held, text = text[len(body) :], body
            yield text
        yield held

    def _check_arrays(self) -> None:
        is_array = False
        for number, path in enumerate(self.paths if len(self.paths) > 1 else ()):
            lines = self._lines(path)
            lines.split_array()
            if number and lines.is_array != is_array:
                kinds = ("an array of objects", "objects on lines")
                found, expected = kinds if lines.is_array else kinds[::-1]
                raise DataError(f"{found}, but {self.paths[0]} has {expected}; predict them one by one", path)
            is_array = lines.is_array

    def fingerprint(self) -> str:
        """A digest of the bytes of the location's files, in their order."""
        return digest_of(files_of(self.location))
