"""A series of frames as a page shows it."""

from __future__ import annotations

from dataclasses import dataclass

from ensue.data.frames.series import Series, Vectors
from ensue.errors import EnsueError
from ensue.inspection.drawing import FrameColumns

LONGEST = 10_000
"""The most frames of a series for a page."""


@dataclass(frozen=True)
class SeriesView:
    """The `frames` (T, d) as they are in the file, NaN where a value is missing; the names of the features, if they
    have any; and the labels that the file has, of the whole or `per_frame`.

    `seconds` is the time from frame to frame, 0 if nobody knows it. Of an image `colors` are the numbers of a pixel; 0:
    it is none.
    """

    series: str
    frames: Vectors
    features: tuple[str, ...]
    labels: tuple[str, ...]
    per_frame: bool
    seconds: float
    colors: int

    @classmethod
    def of(cls, series: Series, *, features: tuple[str, ...] = (), seconds: float = 0.0) -> SeriesView:
        """The view of a series. Raises EnsueError for one that is too long for a page."""
        length = len(series.frames)
        if length > LONGEST:
            raise EnsueError(f"{series.name} has {length:,} frames; up to {LONGEST:,} can be looked into")
        names = series.columns or features
        return cls(series.name, series.frames, names, series.labels, series.per_frame, seconds, series.colors)

    @property
    def columns(self) -> FrameColumns:
        """The places of its frames in drawings."""
        return FrameColumns(len(self.frames), seconds=self.seconds)

    @property
    def names(self) -> list[str]:
        """A name for each feature."""
        return list(self.features) or [f"feature {number}" for number in range(self.frames.shape[1])]
