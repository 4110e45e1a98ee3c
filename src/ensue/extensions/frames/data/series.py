"""A series of frames."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    """How many decibels below the largest feature of a sound, which is then 0, the least one is; 0: as they are."""

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
    """Where a file's name has its label, such as `{label}_{}_{}`."""
    encoding: str = "utf-8"
    group: str = ""
    """The column of a table, or the part of a pattern, with what belongs together; empty: none is read."""


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
    """Of a sound: how many were mixed; 0: it is no sound."""
    colors: int = 0
    """Of an image: the numbers of a pixel; 0: it is no image."""
    group: str = ""
    """The group it belongs to, such as a speaker; "" if nobody says it."""

    def named_group(self, name: str) -> str:
        """The group that data call `name`. Raises DataError if they name none."""
        if not self.group:
            where = "data.group names a column of a table of paths or of frames, or a part of data.pattern in braces"
            raise self.error(f'{self.name}: no group "{name}"; {where}')
        return self.group

    def error(self, message: str) -> DataError:
        """A mistake in this series."""
        return DataError(message, *self.place)


def as_vectors(values: NDArray[Any], place: str) -> Vectors:
    """Numbers as float32, infinite if they are too large for it. Raises DataError for what are none."""
    if values.dtype.kind not in "fiub":
        raise DataError(f"expected numbers, found an array of {values.dtype}", place)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is a mistake of its own
        return values.astype(np.float32)
