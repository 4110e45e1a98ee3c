"""How files of frames are read, as values that recipes know. Nothing is read here, and no numpy is needed."""

from __future__ import annotations

from typing import Literal, NamedTuple


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


class Reading(NamedTuple):
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
