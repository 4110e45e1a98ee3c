"""A series of frames as a section of a page, and numbers for each frame: few as curves, many as a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ensue.data.frames.series import Series, Vectors
from ensue.errors import EnsueError
from ensue.inspection.drawing import FrameColumns, lines
from ensue.inspection.frame_drawing import feature_map, upright
from ensue.inspection.page import Section

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


MOST_CURVES = 6
"""The most features that are curves."""


def series_section(view: SeriesView, columns: FrameColumns) -> Section:
    """The series: few features as curves, many as a map, an image upright."""
    if view.colors:
        drawing = upright(view.frames, columns, colors=view.colors, name="the image")
        about = "Each row of the image is a frame."
    else:
        drawing = curves_or_map(view.frames, columns, view.names, name="the series")
        is_map = view.frames.shape[1] > MOST_CURVES
        about = "Each column is a frame, with the first feature at the bottom." if is_map else "A curve is a feature."
    if missing := int(np.isnan(view.frames).sum()):
        about += f" {missing:,} of {view.frames.size:,} values {'is' if missing == 1 else 'are'} missing."
    if view.labels and not view.per_frame:
        about += f" Its file says: {' '.join(dict.fromkeys(view.labels))}."
    return Section("The series", "inspection/plain.html", {"about": about, "note": columns.note, "shown": drawing})


def curves_or_map(values: NDArray[Any], columns: FrameColumns, names: Sequence[str], *, name: str) -> Markup:
    """Numbers (T, d) for the frames: a few for each as curves, many as a map."""
    if len(names) > MOST_CURVES:
        return feature_map(values, columns, names, name=name)
    return lines(dict(zip(names, values.T.astype(np.float64), strict=True)), columns, name=name)
