"""Files of labeled data or lines of a stream, the detection of their formats, and counts of skipped rows."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ensue.data.decoding import check_encoding
from ensue.data.files import Data, as_location, common_format, files_of
from ensue.data.lines import Lines, is_blank
from ensue.data.records.record import sample
from ensue.data.sources import digest_of
from ensue.errors import DataError, IncompleteError, pluralize
from ensue.notices import warn_once

FormatT = TypeVar("FormatT")
_ARRAY_BORDER = re.compile(r"\A\s*\]\s*\[")
"""Matches the end of an array and the beginning of the next array."""


class LabeledFiles:
    """The files of a location in order, or lines of a stream, which can be read once.

    A single file is opened only once for detection and the first reading. `paths` are the files to read; by default all
    files of the location. `encoding_of` is a function from a file and the default encoding to the encoding of the file.
    With `nested`, spans may overlap. `convert` is a function that transforms the lines of each file before reading.
    """

    def __init__(
        self, location: Data | Lines, encoding: str, *, paths: Sequence[Path] | None = None,
        encoding_of: Callable[[Path, str], str] = lambda path, encoding: encoding, nested: bool = False,
        convert: Callable[[Lines], Lines] | None = None,
    ) -> None:  # fmt: skip
        self.encoding, self._nested = check_encoding(encoding), nested
        self._encoding_of, self._convert = encoding_of, convert
        self._stored: Lines | None = None
        self._first: Lines | None = None
        self.paths: tuple[Path, ...] = ()
        if isinstance(location, Lines):
            self.location, self._stored = location.name, location
        else:
            self.location = as_location(location)
            self.paths = files_of(self.location) if paths is None else tuple(paths)

    def __len__(self) -> int:
        return max(1, len(self.paths))

    def __iter__(self) -> Iterator[Lines]:
        """Yield the lines of each file. Only a stream may have been read partly in an earlier iteration."""
        stored, self._stored = self._stored, None
        if stored is not None:
            self._first = stored
            yield stored
            if not self.paths:
                self._stored = stored  # the next iteration continues the stream
            return
        for path in self.paths:
            lines = self._lines(path)
            self._first = lines if path == self.paths[0] else self._first
            yield lines

    def _lines(self, path: Path) -> Lines:
        lines = Lines.of(path, encoding=self._encoding_of(path, self.encoding), nested=self._nested)
        return lines if self._convert is None else self._convert(lines)

    def store_for_next(self, lines: Lines) -> None:
        """Store the lines for the next iteration if there is only one file, so that it is not opened again."""
        if len(self) == 1:
            self._stored = lines

    def detect_formats(
        self, find: Callable[[Lines, FormatT | None], FormatT], name_of: Callable[[FormatT], str], *,
        arrays: bool = True,
    ) -> dict[str, FormatT]:  # fmt: skip
        """Detect the format or layout of each file, and return them by the name of the file.

        `find` detects the format from the lines of a file and the result for the first file (None for the first file
        itself). `name_of` returns the name of a format. With `arrays`, files may be JSON arrays. Blank files are
        ignored, unless there is only one file. Raises DataError if the formats differ.
        """
        result: dict[str, FormatT] = {}
        for lines in self:
            if arrays:
                lines.split_array()
            if len(self) == 1 or not all(is_blank(line) for _, line in sample(lines)):
                result[lines.name] = find(lines, next(iter(result.values()), None))
                common_format({name: name_of(format) for name, format in result.items()})
            self.store_for_next(lines)
        return result

    def check_text(self) -> None:
        """Raise DataError if all files are empty."""
        if not self.paths:
            return
        for lines in self:
            self.store_for_next(lines)
            if not lines.is_empty():
                return
        raise DataError("the text is empty", self.location)

    def as_one(self, records: Iterable[str], *, are_objects: bool, begins: bool = True) -> Iterator[str]:
        """Yield the text of one file with the written `records` of all files. JSON arrays are joined to one array.

        `begins` is whether the records are the beginning of the output, which gets the byte order mark of the first
        file. Raises DataError if only some of the files are arrays.
        """
        if are_objects:
            self._check_arrays()
        array_end = ""
        for number, record in enumerate(records):
            text = array_end + record
            if number == 0 and begins and self._first is not None:
                yield self._first.mark
            array_end = ""
            if are_objects:
                text = _ARRAY_BORDER.sub(",", text)
                body = text.rstrip()
                body = body[:-1].rstrip() if body.endswith("]") else text
                array_end, text = text[len(body) :], body
            yield text
        yield array_end

    def _check_arrays(self) -> None:
        is_array = False
        for number, path in enumerate(self.paths if len(self.paths) > 1 else ()):
            lines = self._lines(path)
            lines.split_array()
            if number and lines.is_array != is_array:
                kinds = ("an array of objects", "objects on lines")
                result, expected = kinds if lines.is_array else kinds[::-1]
                raise DataError(f"{result}, but {self.paths[0]} has {expected}; predict the files one by one", path)
            is_array = lines.is_array

    def fingerprint(self) -> str:
        """Return a digest of the bytes of all files of the location, in order."""
        return digest_of(files_of(self.location))


SKIP_REMEDY = "--set data.incomplete=skip leaves such rows out"


class SkippedRows:
    """Counts of rows that `data.incomplete = "skip"` leaves out, by missing value, and the place of the first row."""

    def __init__(self, unit: str = "row") -> None:
        self.unit, self.first, self.missing = unit, "", Counter[str]()

    def add(self, error: IncompleteError) -> None:
        """Count a skipped row, given the error that describes it."""
        self.missing[error.missing] += 1
        self.first = self.first or error.place

    def warn(self, location: str) -> None:
        """Warn if rows were skipped."""
        if self.first:
            message = f"{self.first}the first {self.unit} that data.incomplete=skip leaves out; in total {self}"
            warn_once(f"incomplete {location}", message)

    def __str__(self) -> str:
        counts = ", ".join(f"{number:,} without a {value}" for value, number in self.missing.items())
        return f"{pluralize(self.missing.total(), self.unit)}: {counts}"
