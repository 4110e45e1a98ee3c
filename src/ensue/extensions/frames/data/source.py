"""Reader of the series in a file, a folder, a glob or a table of paths, with checks of width, rate and values.

Labels are read from the file of a series, a table of paths, a pattern of file names, or the names of folders.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ensue.data.decoding import check_encoding
from ensue.data.files import Data, as_location, expanduser, files_of, locations_in
from ensue.data.lines import Lines
from ensue.data.row_formats import suffix
from ensue.data.sources import digest_of
from ensue.errors import DataError, RecipeError
from ensue.extensions.frames.data import readers, sounds
from ensue.extensions.frames.data.series import Series, SeriesOptions
from ensue.extensions.frames.signs import FRAME_SUFFIXES, FRAME_TABLES, PATH, detect_dialect, file_kind, table_rows


class LabeledPath(NamedTuple):
    """A file with its label and group ("" if unknown), and its line in a table of paths."""

    path: Path
    label: str
    line: int | None = None
    group: str = ""


def paths_in_table(path: Path, reading: SeriesOptions) -> Iterator[LabeledPath]:
    """Yield the files of a table of paths with labels and groups. Raises DataError for a missing file."""
    lines = Lines.of(path, encoding=check_encoding(reading.encoding))
    dialect = detect_dialect(lines)
    names = [name.strip() for name in dialect.first_rows(lines)[0]]
    path_column = names.index(PATH)
    label, group = (names.index(name) if name in names else None for name in (reading.labels, reading.group))
    for row in dialect.read(lines, header=True, needed=()):
        values = [dialect.value(field).strip() for field in row.values]
        file = path.parent / values[path_column]
        if not file.is_file():
            raise DataError(f"no such file: {values[path_column]}", path, row.record.line)
        label_name, group_name = ("" if column is None else values[column] for column in (label, group))
        yield LabeledPath(file, label_name, row.record.line, group_name)


def match_pattern(paths: Sequence[Path], reading: SeriesOptions) -> Iterator[LabeledPath]:
    """Yield files with the labels and groups in their names. Raises DataError for a name that does not match."""
    pattern = reading.pattern
    expression = compile_pattern(pattern, reading.group)
    for path in paths:
        match = expression.fullmatch(path.name) or expression.fullmatch(path.name.split(".")[0])
        if match is None:
            raise DataError(f"the name does not match the pattern {pattern}", path)
        yield LabeledPath(path, match["label"], group=match.groupdict().get("group", ""))


def compile_pattern(pattern: str, group: str = "") -> re.Pattern[str]:
    """Return the regular expression of a pattern.

    `{label}` matches the label, the name `group` in braces matches the group, and other braces match any characters.
    Raises RecipeError unless the pattern has exactly one `{label}`.
    """
    parts = re.split(r"(\{\w*\})", pattern)
    if parts.count("{label}") != 1:
        raise RecipeError(f'data.pattern is "{pattern}"; expected {{label}} once, as in {{label}}_{{}}_{{}}.wav')
    expressions = {"{label}": "(?P<label>.+?)"}
    if group and parts.count(f"{{{group}}}") == 1:
        expressions.setdefault(f"{{{group}}}", "(?P<group>.+?)")
    expressions = {part: ".+?" if part.startswith("{") else re.escape(part) for part in parts} | expressions
    return re.compile("".join(expressions[part] for part in parts), re.S)


def label_by_folder(paths: Sequence[Path], folder: Path) -> Iterator[LabeledPath]:
    """Yield files with their subfolders as labels. If any file is not in a subfolder, no file has a label."""
    names = [path.relative_to(folder).parts if path.is_relative_to(folder) else () for path in paths]
    are_classes = all(len(parts) > 1 for parts in names)
    for path, parts in zip(paths, names, strict=True):
        yield LabeledPath(path, parts[0] if are_classes else "")


Reader = Callable[[Path, SeriesOptions], Iterator[Series]]
READERS: dict[str, Reader] = {
    "sound": sounds.read_sound, "npy": readers.read_numpy, "npz": readers.read_numpy,
    "safetensors": readers.read_safetensors, "idx": readers.read_idx, "image": readers.read_image,
    "table": readers.read_table, "ts": readers.read_ts,
}  # fmt: skip
NUMBERED = re.compile(r"(.+)\[([0-9]{1,15})\]")
"""Matches `FILE[n]`, the name of series n (from 0) in a file with several series."""


class Shape(NamedTuple):
    """The properties that all series of a location must have in common."""

    width: int
    """The number of features."""
    rate: float
    columns: tuple[str, ...]
    is_sound: bool
    first: str
    """The name of the first series, or of the training data, for messages."""


class FrameSource:
    """The series of a location in the order of their files, or the series `FILE[n]`.

    `location` is a file, folder, glob or table of paths. All series have the `shape`, by default the shape of the first
    series. Raises DataError if there is no file, or in the iteration, if a series is invalid.
    """

    def __init__(self, location: Data, reading: SeriesOptions, *, shape: Shape | None = None) -> None:
        self.reading, self.shape = reading, shape
        self.path_table: Path | None = None
        names = locations_in(as_location(location))
        self._members = [FrameSource(name, reading) for name in names] if len(names) > 1 else []
        self.location, self.number = split_number(as_location(location))
        paths = files_of(self.location)
        if self._members:
            return
        if len(paths) == 1 and suffix(paths[0].name) in FRAME_TABLES:
            rows = table_rows(Lines.of(paths[0], encoding=check_encoding(reading.encoding)))
            self.path_table = paths[0] if rows and PATH in rows[0] else None
        elif len(paths) > 1:
            paths = tuple(path for path in paths if "idx1" not in path.name)  # idx1 files have labels of images
        self._paths = paths

    @cached_property
    def files(self) -> list[LabeledPath]:
        """The files, with labels from tables of paths, patterns and names of folders."""
        if self._members:
            return [file for member in self._members for file in member.files]
        if self.path_table is not None:
            return list(paths_in_table(self.path_table, self.reading))
        if self.reading.pattern:
            return list(match_pattern(self._paths, self.reading))
        return list(label_by_folder(self._paths, expanduser(self.location)))

    def fingerprint(self) -> str:
        """Return a digest of the bytes of all files and of the table of paths."""
        if self._members:
            return hashlib.sha256("".join(member.fingerprint() for member in self._members).encode()).hexdigest()
        return digest_of([*([self.path_table] if self.path_table else []), *(file.path for file in self.files)])

    def labels_in_names(self) -> list[str]:
        """Return the values by which a cache identifies the labels.

        For a table of paths, the value is the digest of the listed files. For other locations the values are the labels
        and groups in names, and the digest of the label files of idx files.
        """
        if self._members:
            return [name for member in self._members for name in member.labels_in_names()]
        if self.path_table is not None:
            return [digest_of(file.path for file in self.files)]
        label_files = filter(None, (readers.label_file(path) for path in self._paths if file_kind(path) == "idx"))
        return [*(name for file in self.files for name in (file.label, file.group)), digest_of(label_files)]

    def __iter__(self) -> Iterator[Series]:
        if self.number is None:
            return self._read()
        series = list(islice(self._read(), self.number, self.number + 1))
        if not series:
            raise DataError(f"no series number {self.number}", self.location)
        return iter(series)

    def _read(self) -> Iterator[Series]:
        for member in self._members:
            yield from map(self._check, member)
        for file in [] if self._members else self.files:
            for series in READERS[kind_of(file.path)](file.path, self.reading):
                labels = (file.label,) if file.label and not series.labels else series.labels
                yield self._check(series._replace(labels=labels, group=series.group or file.group))

    def _check(self, series: Series) -> Series:
        """Return the series. Raises DataError if its shape or a value is invalid."""
        frames = series.frames
        if not frames.size:
            raise series.error("a series without frames")
        first = Shape(frames.shape[1], series.rate, series.columns, series.channels > 0, series.name)
        shape = self.shape = self.shape or first
        if frames.shape[1] != shape.width:
            has_colors = 3 * min(frames.shape[1], shape.width) == max(frames.shape[1], shape.width)
            note = ": perhaps color images and gray images" if has_colors and len(frames) > 1 else ""
            expected = f"expected {shape.width:,}, as in {shape.first}{note}"
            raise series.error(f"frames of {frames.shape[1]:,} features; {expected}")
        if shape.columns and series.columns and series.columns != shape.columns:
            raise series.error(f"columns {', '.join(series.columns)}; expected {', '.join(shape.columns)}")
        if shape.rate and series.rate and abs(series.rate - shape.rate) > readers.MAX_STEP_ERROR * shape.rate:
            raise series.error(f"a rate of {series.rate:,g}; expected {shape.rate:,g}, as in {shape.first}")
        _check_numbers(series, self.reading)
        return series


def split_number(location: str) -> tuple[str, int | None]:
    """Return the file and the number in `FILE[n]`; for other locations, the location and None."""
    match = None if Path(location).exists() else NUMBERED.fullmatch(location)
    if match is None or not Path(match[1]).is_file():
        return location, None
    return match[1], int(match[2])


def _check_numbers(series: Series, reading: SeriesOptions) -> None:
    finite = np.isfinite(series.frames)
    if finite.all():
        return
    is_invalid = np.isinf(series.frames) if reading.missing == "mean" else ~finite
    if is_invalid.any():
        frame, feature = (int(index) for index in np.argwhere(is_invalid)[0])
        name = f'"{series.columns[feature]}"' if series.columns else str(feature)
        is_missing = bool(np.isnan(series.frames[frame, feature]))
        value = 'a missing value (data.missing="mean" replaces it by the mean)' if is_missing else "an infinite number"
        raise series.error(f"frame {frame}, feature {name}: {value}")


def kind_of(path: Path) -> str:
    """Return the key of a file's reader in `READERS`, by the file's name. Raises DataError for an unknown suffix."""
    if kind := file_kind(path) or ("table" if suffix(path.name) in FRAME_TABLES else ""):
        return kind
    known = ", ".join([*FRAME_SUFFIXES, *sorted(FRAME_TABLES)])
    raise DataError(f"unknown suffix; expected {known}, or idx", path)
