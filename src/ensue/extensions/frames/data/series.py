"""Series of frames, the options for reading them, and many series in one array."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import padded_indices, padding_mask
from ensue.errors import DataError

Vectors = NDArray[np.float32]


class LogMel(NamedTuple):
    """The parameters of log-mel features, which are keys of the table `[features]`."""

    window: float = 0.025
    step: float = 0.010
    bands: int = 40
    lowest: float = 20.0
    highest: float = 0.0
    floor: float = 1e-6
    top_db: float = 0.0

    @property
    def dynamic_range(self) -> float:
        """`top_db` converted from decibels to natural logarithms of energy, the unit of the features."""
        return self.top_db * math.log(10) / 10


class SeriesOptions(NamedTuple):
    """The options for reading files as series. Most are keys of the table `[data]`."""

    sound: LogMel = LogMel()
    missing: Literal["refuse", "mean"] = "refuse"
    series: str = "series"
    labels: str = "label"
    time: str = "time"
    pattern: str = ""
    encoding: str = "utf-8"
    group: str = ""
    """The column of groups in a table, or the name of groups in `pattern`; "": no groups."""
    rows: Literal["frames", "series"] = "frames"
    gaps: Literal["refuse", "split", "ignore"] = "refuse"
    features: tuple[str, ...] = ()
    may_lack_labels: bool = False
    """Whether a table may lack the columns of labels and times, as in prediction."""


class Series(NamedTuple):
    """A series of T frames of d features."""

    name: str
    frames: Vectors
    """The features (T, d) in the order of time; NaN for missing values."""
    labels: tuple[str, ...] = ()
    """The labels of the series, or with `per_frame` one label for each frame."""
    per_frame: bool = False
    rate: float = 0.0
    """Frames per second, or samples per second for a sound; 0 if unknown."""
    place: tuple[str, int | None] = ("", None)
    """The path of the file, and the line in a table."""
    columns: tuple[str, ...] = ()
    """The names of the features; empty for features without names."""
    channels: int = 0
    """The number of channels of a sound, which are averaged; 0 for other series."""
    colors: int = 0
    """The number of colors of an image; 0 for other series."""
    group: str = ""
    """The group, such as a speaker; "" if unknown."""

    def named_group(self, name: str) -> str:
        """Return the group. Raises DataError if it is unknown. `name` is the value of `data.group`, for the message."""
        if not self.group:
            advice = "data.group names a column of a table of paths or of frames, or a part of data.pattern in braces"
            raise self.error(f'no group "{name}"; {advice}')
        return self.group

    def error(self, message: str) -> DataError:
        """Return a DataError with the path, the line and the name of this series, unless the path ends in the name."""
        path, line = self.place
        name = "" if path.endswith(self.name) else f"{self.name}: "
        return DataError(f"{name}{message}", path or None, line)


def as_vectors(values: NDArray[Any], path: str) -> Vectors:
    """Return numbers as float32, with infinity on overflow. Raises DataError for an array of other values."""
    if values.dtype.kind not in "fiub":
        raise DataError(f"expected numbers, found an array of {values.dtype}", path)
    with np.errstate(over="ignore"):  # infinite values are reported later, with their line
        return values.astype(np.float32)


class FrameRows:
    """Many series in one array `values` (F, d). Series n is `values[starts[n] : starts[n + 1]]`."""

    def __init__(self, values: Vectors, starts: NDArray[np.int64]) -> None:
        self.values, self.starts = values, starts
        self.lengths = np.diff(starts)

    @classmethod
    def of(cls, series: Sequence[Vectors]) -> "FrameRows":
        """Concatenate arrays (T, d)."""
        starts = np.cumsum([0, *map(len, series)], dtype=np.int64)
        return cls(np.concatenate(series) if series else np.zeros((0, 0), np.float32), starts)

    @classmethod
    def of_series(cls, series: Sequence[Series]) -> "FrameRows":
        """Concatenate the frames of series."""
        return cls.of([item.frames for item in series])

    def select(self, rows: NDArray[np.int64]) -> "FrameRows":
        """Return the series `rows`."""
        return self.of([self[row] for row in rows.tolist()])

    def split_long(self, longest: int) -> "FrameRows":
        """Return the same frames with each series split into equal series of at most `longest` frames."""
        starts = [
            np.linspace(start, end, -(-(end - start) // longest) + 1, dtype=np.int64)[:-1]
            for start, end in pairwise(self.starts.tolist())
        ]
        return FrameRows(self.values, np.append(np.concatenate(starts), self.starts[-1]))

    def padded(self, rows: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> Vectors:
        """Return the series `rows` of the batch `among` (default: `rows`) as (B, T, d), padded with zeros."""
        indices, mask = padded_indices(self.starts, self.lengths, rows, among=among)
        if not indices.size:
            return np.zeros((*indices.shape, self.values.shape[1]), np.float32)
        padded: Vectors = self.values[indices]
        padded[~mask] = 0
        return padded

    def mask(self, rows: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> NDArray[np.bool_] | None:
        """Return the mask of `padded`, True at frames; None if all series of `among` have the same length."""
        return padding_mask(self.lengths, rows, among=among)

    def __getitem__(self, row: int) -> Vectors:
        return self.values[self.starts[row] : self.starts[row + 1]]

    def __len__(self) -> int:
        return len(self.lengths)


CHUNK_FRAMES = 65_536
"""The number of frames that are summed at once, which bounds the memory."""


def moments(series: Iterable[Vectors]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and the standard deviation (d,) of each feature, ignoring missing values.

    The mean of a feature without values is 0. The deviation of a constant or missing feature is 1.
    """
    chunks = [rows[start : start + CHUNK_FRAMES] for rows in series for start in range(0, len(rows), CHUNK_FRAMES)]
    counts = np.maximum(1, sum(np.isfinite(chunk).sum(0) for chunk in chunks))
    mean = sum(np.nansum(chunk, 0, dtype=np.float64) for chunk in chunks) / counts
    deviation = np.sqrt(sum(np.nansum((chunk - mean) ** 2, 0) for chunk in chunks) / counts)
    return mean, np.where(deviation > 1e-6 * np.maximum(1, np.abs(mean)), deviation, 1.0)
