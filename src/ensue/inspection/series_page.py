"""A series of frames as a section of a page, and numbers for each frame: few as curves, many as a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ensue.inspection.drawing import FrameColumns, lines
from ensue.inspection.frame_drawing import feature_map, upright
from ensue.inspection.page import Section
from ensue.inspection.series import SeriesView

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


def curves_or_map(
    values: NDArray[Any], columns: FrameColumns, names: Sequence[str], *, name: str, signed: bool = False
) -> Markup:
    """Numbers (T, d) for the frames: a few for each as curves, many as a map."""
    if len(names) > MOST_CURVES:
        return feature_map(values, columns, names, name=name, signed=signed)
    return lines(dict(zip(names, values.T.astype(np.float64), strict=True)), columns, name=name)
