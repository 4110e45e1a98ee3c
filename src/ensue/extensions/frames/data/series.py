"""A series of frames, the options of reading it, and many series in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import real_places, side_by_side
from ensue.errors import DataError

Vectors = NDArray[np.float32]


class LogMel(NamedTuple):
    """The parameters of log-mel features. `highest` 0 is half of the sampling rate."""

    window: float = 0.025
    """Seconds of a frame, N samples."""
    step: float = 0.010
    """Seconds from a frame to the next, S samples."""
    bands: int = 40
    lowest: float = 20.0
    highest: float = 0.0
    """The edges of the lowest and the highest band, in hertz."""
    floor: float = 1e-6
    """The least energy of a band; samples are from -1 to 1."""
    top_db: float = 0.0
    """The decibels from the largest feature of a sound, which is then 0, down to the least feature; 0: no limit."""

    @property
    def reach(self) -> float:
        """`top_db` as the difference of two features, which are natural logarithms of energies."""
        return self.top_db * math.log(10) / 10


class SeriesOptions(NamedTuple):
    """How files become series."""

    sound: LogMel = LogMel()
    missing: Literal["refuse", "mean"] = "refuse"
    """Whether missing values are a mistake, or are to be read as the mean."""
    series: str = "series"
    labels: str = "label"
    time: str = "time"
    """The columns of a table: the name of the series, its label, and when a frame was taken."""
    pattern: str = ""
    """The place of the label in the name of a file, such as `{label}_{}_{}`."""
    encoding: str = "utf-8"
    group: str = ""
    """The column of a table, or the name in a pattern, of the groups; empty: no groups."""


class Series(NamedTuple):
    """Frames (T, d), one after another in time. NaN is a missing value.

    `labels` are those of the series, or with `per_frame` T of them, one for each frame. `rate` is the number of frames
    (of a sound, of samples) in a second, 0 if nobody knows it. `place` is the file, or the file and its line.
    """

    name: str
    frames: Vectors
    labels: tuple[str, ...] = ()
    per_frame: bool = False
    rate: float = 0.0
    place: tuple[str, int | None] = ("", None)
    columns: tuple[str, ...] = ()
    """The names of the d features, if they have names."""
    channels: int = 0
    """The channels of a sound, which were mixed; 0: no sound."""
    colors: int = 0
    """The numbers of a pixel of an image; 0: no image."""
    group: str = ""
    """The group, such as a speaker; "" if unknown."""

    def named_group(self, name: str) -> str:
        """Return the group that data call `name`. Raises DataError if they name none."""
        if not self.group:
            where = "data.group names a column of a table of paths or of frames, or a part of data.pattern in braces"
            raise self.error(f'{self.name}: no group "{name}"; {where}')
        return self.group

    def error(self, message: str) -> DataError:
        """Return a DataError with the place of this series."""
        path, line = self.place
        return DataError(message, path or None, line)


def as_vectors(values: NDArray[Any], place: str) -> Vectors:
    """Return numbers as float32, infinite if they are too large for it.

    Raises:
        DataError: The values are no numbers.
    """
    if values.dtype.kind not in "fiub":
        raise DataError(f"expected numbers, found an array of {values.dtype}", place)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is a mistake of its own
        return values.astype(np.float32)


COUNTED_FRAMES = 65_536
"""Frames that are counted together."""


class FrameRows:
    """Series of frames as rows: `values` (F, d) from `starts[n]` to `starts[n + 1]`."""

    def __init__(self, values: Vectors, starts: NDArray[np.int64]) -> None:
        self.values, self.starts = values, starts
        self.lengths = np.diff(starts)

    @classmethod
    def of(cls, series: Sequence[Vectors]) -> FrameRows:
        """Return these series, each (T, d)."""
        starts = np.cumsum([0, *map(len, series)], dtype=np.int64)
        return cls(np.concatenate(series) if series else np.zeros((0, 0), np.float32), starts)

    def select(self, rows: NDArray[np.int64]) -> FrameRows:
        """Return some of the series."""
        return self.of([self[row] for row in rows.tolist()])

    def cut(self, longest: int) -> FrameRows:
        """Return these frames, where each series is cut into equal pieces of at most `longest`."""
        pieces = [
            np.linspace(start, end, -(-(end - start) // longest) + 1, dtype=np.int64)[:-1]
            for start, end in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)
        ]
        return FrameRows(self.values, np.append(np.concatenate(pieces), self.starts[-1]))

    def padded(self, rows: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> Vectors:
        """Return the series side by side (B, T, d), filled up with zeros, as wide as all those of `among`."""
        places, real = side_by_side(self.starts, self.lengths, rows, among=among)
        if not places.size:
            return np.zeros((*places.shape, self.values.shape[1]), np.float32)
        padded: Vectors = self.values[places]
        padded[~real] = 0
        return padded

    def mask(self, rows: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> NDArray[np.bool_] | None:
        """Return which places of `padded` are real; None if all of `among` are."""
        return real_places(self.lengths, rows, among=among)

    def __getitem__(self, row: int) -> Vectors:
        return self.values[self.starts[row] : self.starts[row + 1]]

    def __len__(self) -> int:
        return len(self.lengths)


def moments(series: Iterable[Vectors]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and deviation (d,) of each feature without missing values; 0 and 1 if all are missing."""
    parts = [part[start : start + COUNTED_FRAMES] for part in series for start in range(0, len(part), COUNTED_FRAMES)]
    counts = np.maximum(1, sum(np.isfinite(part).sum(0) for part in parts))
    mean = sum(np.nansum(part, 0, dtype=np.float64) for part in parts) / counts
    spread = np.sqrt(sum(np.nansum((part - mean) ** 2, 0) for part in parts) / counts)
    return mean, np.where(spread > 1e-6 * np.maximum(1, np.abs(mean)), spread, 1.0)
