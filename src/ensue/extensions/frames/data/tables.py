"""Tables of frames: a row for each, a column for each feature; and columns with the series, its label, and the time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ensue.data.decoding import checked_encoding
from ensue.data.lines import Lines
from ensue.errors import DataError, nearest
from ensue.extensions.frames.data.series import Series, SeriesOptions, as_vectors
from ensue.extensions.frames.signs import SERIES, dialect_of

MISSING = {"", "nan", "na", "n/a", "null", "none", "?"}
LEAST_STEP = 1e-12
"""Seconds from a frame to the next, which may not be fewer."""
EVEN = 0.01
"""By which share of a step the time of a frame may be off."""


class Frame(NamedTuple):
    """A row: its line, the name of its series, its label, its time, its features, and its group."""

    line: int
    series: str
    label: str
    time: float | None
    features: list[float]
    group: str = ""


class Header(NamedTuple):
    """The places of the columns; None for one that is not there."""

    series: int | None
    label: int | None
    time: int | None
    group: int | None
    features: list[int]
    names: tuple[str, ...]


def read_table(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """The series of a table, one after another. Without a column of series it is one, with the name of the file.

    Raises DataError, with the line, for a cell that is no number, a series that goes on after another one, and gaps in
    time.
    """
    lines = Lines.of(path, encoding=checked_encoding(reading.encoding))
    dialect = dialect_of(lines)
    header = _header(dialect.first(lines), reading, path)
    rows = (
        _frame(row.record.line, [dialect.value(field).strip() for field in row.values], header, path)
        for row in dialect.read(lines, header=True, needed=())
    )
    seen: set[str] = set()
    for name, group in groupby(rows, key=lambda frame: frame.series):
        frames = list(group)
        if name in seen:
            raise DataError(f'"{name}" goes on after another series; sort the rows by it', path, frames[0].line)
        seen.add(name)
        labels = tuple(frame.label for frame in frames) if header.label is not None else ()
        yield Series(
            name, as_vectors(np.array([frame.features for frame in frames]), str(path)), labels, bool(labels),
            _rate(frames, path), (str(path), frames[0].line), header.names, group=frames[0].group,
        )  # fmt: skip


def _header(rows: list[list[str]], reading: SeriesOptions, path: Path) -> Header:
    names = [name.strip() for name in rows[0]] if rows else []
    if len(set(names)) < len(names) or "" in names:
        raise DataError("the first row has a name twice, or none; expected the names of the columns", path, 1)
    if not names or all(_is_number(name) for name in names):
        raise DataError("the first row has no names of columns", path, 1)
    for asked, usual in ((reading.series, SERIES), (reading.labels, "label"), (reading.time, "time")):
        if asked != usual and asked not in names:
            raise DataError(f'no column "{asked}"{nearest(asked, names)}; there are {", ".join(names)}', path, 1)
    places = {name: place for place, name in enumerate(names)}
    series, label, time, group = (
        places.get(name) for name in (reading.series, reading.labels, reading.time, reading.group)
    )
    features = [place for place in range(len(names)) if place not in (series, label, time, group)]
    if not features:
        raise DataError("no column of features", path, 1)
    return Header(series, label, time, group, features, tuple(names[place] for place in features))


def _frame(line: int, cells: list[str], header: Header, path: Path) -> Frame:
    return Frame(
        line,
        path.name if header.series is None else cells[header.series],
        "" if header.label is None else cells[header.label],
        None if header.time is None else _time(cells[header.time], path, line),
        [
            _number(cells[place], name, path, line)
            for place, name in zip(header.features, header.names, strict=True)
        ],
        "" if header.group is None else cells[header.group],
    )  # fmt: skip


def _number(cell: str, name: str, path: Path, line: int) -> float:
    if cell.lower() in MISSING:
        return float("nan")
    try:
        return float(cell)
    except ValueError:
        raise DataError(f'column "{name}": expected a number, found "{cell:.40}"', path, line) from None


def _is_number(cell: str) -> bool:
    try:
        return float(cell) == float(cell)
    except ValueError:
        return False


def _time(cell: str, path: Path, line: int) -> float:
    """Seconds, as a number or as a date with a time, which is UTC unless it says otherwise: no hour comes twice."""
    try:
        if _is_number(cell):
            if math.isinf(seconds := float(cell)):
                raise ValueError(cell)
            return seconds
        date = datetime.fromisoformat(cell)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise DataError(
            f'expected a time, as a number or as 2026-01-31T12:00:00; found "{cell:.40}"', path, line
        ) from None


def _rate(frames: list[Frame], path: Path) -> float:
    """Frames in a second by the column of time; 0 without one. Raises DataError where frames are not evenly spaced."""
    times = [frame.time for frame in frames if frame.time is not None]
    if len(times) < 2:
        return 0.0
    step = times[1] - times[0]
    for frame, before, time in zip(frames[1:], times, times[1:], strict=False):
        if step < LEAST_STEP or abs(time - before - step) > EVEN * abs(step):
            found = f"{time - before:g} after the frame before"
            usual = f"{step:g}, as between the first two frames of the series"
            expected = "a time above 0" if step < LEAST_STEP else usual
            raise DataError(f"a gap in time: {found}; expected {expected}", path, frame.line)
    return 1 / step
