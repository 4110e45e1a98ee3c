"""The series of a file, a folder, a glob or a table of paths, checked: one width, one rate, finite numbers.

Labels that are not in the file of a series come from a table of paths, a pattern of names, or folders named by class.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ensue.data.decoding import checked_encoding
from ensue.data.files import Location, expanded, files_of, locations_in, one_location
from ensue.data.lines import Lines
from ensue.data.row_formats import suffix
from ensue.data.sources import digest_of
from ensue.errors import DataError, RecipeError
from ensue.extensions.frames.data import readers, sounds
from ensue.extensions.frames.data.series import Series, SeriesOptions
from ensue.extensions.frames.signs import FRAME_SUFFIXES, FRAME_TABLES, PATH, dialect_of, frames_in, table_rows


class LabeledPath(NamedTuple):
    """A file with its label and group ("" without), and the line of the table that names the file."""

    path: Path
    label: str
    line: int | None = None
    group: str = ""


def is_manifest(path: Path, encoding: str) -> bool:
    """Return whether a table has paths of files."""
    return PATH in next(iter(table_rows(Lines.of(path, encoding=checked_encoding(encoding)))), [])


def listed(path: Path, reading: SeriesOptions) -> Iterator[LabeledPath]:
    """Yield the files of a table, relative to its folder, with labels and groups.

    Raises:
        DataError: A file is missing.
    """
    lines = Lines.of(path, encoding=checked_encoding(reading.encoding))
    dialect = dialect_of(lines)
    names = [name.strip() for name in dialect.first(lines)[0]]
    place = names.index(PATH)
    label, group = (names.index(name) if name in names else None for name in (reading.labels, reading.group))
    for row in dialect.read(lines, header=True, needed=()):
        values = [dialect.value(field).strip() for field in row.values]
        file = path.parent / values[place]
        if not file.is_file():
            raise DataError(f"no such file: {values[place]}", path, row.record.line)
        of_file = ("" if column is None else values[column] for column in (label, group))
        yield LabeledPath(file, next(of_file), row.record.line, next(of_file))


def by_pattern(paths: Sequence[Path], reading: SeriesOptions) -> Iterator[LabeledPath]:
    """Yield the labels and groups in the names of files. Raises DataError for a name that does not fit."""
    pattern = reading.pattern
    expression = compiled(pattern, reading.group)
    for path in paths:
        match = expression.fullmatch(path.name) or expression.fullmatch(path.name.split(".")[0])
        if match is None:
            raise DataError(f"the name does not fit the pattern {pattern}", path)
        yield LabeledPath(path, match["label"], group=match.groupdict().get("group", ""))


def compiled(pattern: str, group: str = "") -> re.Pattern[str]:
    """`{label}` is the label, `group` in braces the group, other names in braces stand for any characters, all else for
    itself.

    Raises RecipeError for a pattern without `{label}`, or with two.
    """
    parts = re.split(r"(\{\w*\})", pattern)
    if parts.count("{label}") != 1:
        raise RecipeError(f'data.pattern is "{pattern}"; expected one {{label}} in it, as in {{label}}_{{}}_{{}}.wav')
    expressions = {"{label}": "(?P<label>.+?)"}
    if group and parts.count(f"{{{group}}}") == 1:
        expressions.setdefault(f"{{{group}}}", "(?P<group>.+?)")
    return re.compile(
        "".join(expressions.get(part, ".+?" if part.startswith("{") else re.escape(part)) for part in parts), re.S
    )


def by_folder(paths: Sequence[Path], folder: Path) -> Iterator[LabeledPath]:
    """Yield files in folders, whose names are the labels; without labels if some file is in none."""
    parts = [path.relative_to(folder).parts if path.is_relative_to(folder) else () for path in paths]
    are_classes = all(len(part) > 1 for part in parts)
    for path, part in zip(paths, parts, strict=True):
        yield LabeledPath(path, part[0] if are_classes else "")


Reader = Callable[[Path, SeriesOptions], Iterator[Series]]
READERS: dict[str, Reader] = {
    "sound": sounds.read_sound,
    "npy": readers.read_numpy,
    "npz": readers.read_numpy,
    "safetensors": readers.read_safetensors,
    "idx": readers.read_idx,
    "image": readers.read_image,
    "table": readers.read_table,
}
NUMBERED = re.compile(r"(.+)\[([0-9]{1,15})\]")
"""How a series of a file of many is called: `FILE[n]`, from 0 on."""


class Shape(NamedTuple):
    """The width and the rate that all series have, and the series that was the first to have them."""

    width: int
    rate: float
    columns: tuple[str, ...]
    is_sound: bool
    first: str


class FrameSource:
    """The series of a location in the order of their files, or the only series that `FILE[n]` names.

    Args:
        location: The file, folder, glob or table of paths.
        reading: The options of reading.
        shape: The shape that all series must have; without it the first series sets it.

    Raises:
        DataError: There is no file; while reading, a series cannot be used.
    """

    def __init__(self, location: Location, reading: SeriesOptions, *, shape: Shape | None = None) -> None:
        self.reading, self.shape = reading, shape
        self.manifest: Path | None = None
        names = locations_in(one_location(location))
        self._members = [FrameSource(name, reading) for name in names] if len(names) > 1 else []
        self.location, self.number = numbered(one_location(location))
        paths = files_of(self.location)
        if self._members:
            return
        if len(paths) == 1 and suffix(paths[0].name) in FRAME_TABLES and is_manifest(paths[0], reading.encoding):
            self.manifest = paths[0]
        elif len(paths) > 1:
            paths = tuple(path for path in paths if "idx1" not in path.name)  # the labels of idx files
        self._paths = paths

    @cached_property
    def files(self) -> list[LabeledPath]:
        """The files with the labels that stand elsewhere."""
        if self._members:
            return [file for member in self._members for file in member.files]
        if self.manifest is not None:
            return list(listed(self.manifest, self.reading))
        if self.reading.pattern:
            return list(by_pattern(self._paths, self.reading))
        return list(by_folder(self._paths, expanded(self.location)))

    def fingerprint(self) -> str:
        """Return a digest of the bytes of all files, and of the table that names them."""
        if self._members:
            return hashlib.sha256("".join(member.fingerprint() for member in self._members).encode()).hexdigest()
        return digest_of([*([self.manifest] if self.manifest else []), *(file.path for file in self.files)])

    def labels_in_names(self) -> list[str]:
        """Return the labels and groups that files have from their names or folders, in order.

        Idx files give the digest of the files of labels beside them, and a table the digest of the files that it names.
        """
        if self.manifest is not None:
            return [digest_of(file.path for file in self.files)]
        beside = filter(None, (readers.labels_beside(path) for path in self._paths if frames_in(path) == "idx"))
        return [*(part for file in self.files for part in (file.label, file.group)), digest_of(beside)]

    def __iter__(self) -> Iterator[Series]:
        if self.number is None:
            return self._all()
        series = list(islice(self._all(), self.number, self.number + 1))
        if not series:
            raise DataError(f"no series number {self.number}", self.location)
        return iter(series)

    def _all(self) -> Iterator[Series]:
        for member in self._members:
            yield from map(self._checked, member)
        for file in [] if self._members else self.files:
            for series in READERS[kind_of(file.path)](file.path, self.reading):
                yield self._checked(self._labeled(series, file))

    def _labeled(self, series: Series, file: LabeledPath) -> Series:
        labels = (file.label,) if file.label and not series.labels else series.labels
        return series._replace(labels=labels, group=series.group or file.group)

    def _checked(self, series: Series) -> Series:
        frames = series.frames
        if not frames.size:
            raise series.error(f"{series.name}: a series without frames")
        shape = self.shape = self.shape or Shape(
            frames.shape[1], series.rate, series.columns, series.channels > 0, series.name
        )
        if frames.shape[1] != shape.width:
            one_is_colored = 3 * min(frames.shape[1], shape.width) == max(frames.shape[1], shape.width)
            raise series.error(
                f"{series.name}: frames of {frames.shape[1]:,} features; expected {shape.width:,}, as in {shape.first}"
                + (": colors against gray, if these are images" if one_is_colored and len(frames) > 1 else "")
            )
        if shape.columns and series.columns and series.columns != shape.columns:
            raise series.error(f"columns {', '.join(series.columns)}; expected {', '.join(shape.columns)}")
        if shape.rate and series.rate and abs(series.rate - shape.rate) > readers.MAX_STEP_ERROR * shape.rate:
            raise series.error(
                f"{series.name}: a rate of {series.rate:,g}; expected {shape.rate:,g}, as in {shape.first}"
            )
        _check_numbers(series, self.reading)
        return series


def numbered(location: str) -> tuple[str, int | None]:
    """Return the file and the number in `FILE[n]`; else the location, and None."""
    match = None if Path(location).exists() else NUMBERED.fullmatch(location)
    if match is None or not Path(match[1]).is_file():
        return location, None
    return match[1], int(match[2])


def _check_numbers(series: Series, reading: SeriesOptions) -> None:
    finite = np.isfinite(series.frames)
    if finite.all():
        return
    is_odd = np.isinf(series.frames) if reading.missing == "mean" else ~finite
    if is_odd.any():
        frame, feature = (int(place) for place in np.argwhere(is_odd)[0])
        name = f'"{series.columns[feature]}"' if series.columns else str(feature)
        is_missing = bool(np.isnan(series.frames[frame, feature]))
        what = 'a missing value (data.missing="mean" reads the mean)' if is_missing else "a number that is infinite"
        raise series.error(f"{series.name}: frame {frame}, feature {name}: {what}")


def kind_of(path: Path) -> str:
    """Return the reader of a file, by its name. Raises DataError for a name that says nothing."""
    if kind := frames_in(path) or ("table" if suffix(path.name) in FRAME_TABLES else ""):
        return kind
    known = ", ".join([*FRAME_SUFFIXES, *sorted(FRAME_TABLES)])
    raise DataError(f"no file of frames by its name; expected {known}, or idx", path)
