"""The sections of a page for a series in a model of the next frame."""

from __future__ import annotations

import numpy as np

from ensue.inspection.drawing import FrameColumns, lines
from ensue.inspection.frame_drawing import feature_map
from ensue.inspection.page import Section
from ensue.inspection.series_page import MOST_CURVES, curves_or_map, series_section
from ensue.tasks.frame_prediction.view import FramePredictorView

NATS = "−log p of each frame, given those before it. It is below 0 where the density is above 1."
BOUND = (
    "What each frame costs: −log p of the frame, given latent variables that have seen it, and their KL divergence "
    "from the prior. The sum is a bound on −log p."
)
EXPECTED = "What is expected of each frame from those before it, and the frame as it came."
FROM_THE_PRIOR = " The latent variables are drawn from their prior, since nobody has seen the frame."


def series_sections(view: FramePredictorView) -> list[Section]:
    """All sections."""
    columns = view.columns
    sections = [series_section(view, columns), _nats(view, columns), _expected(view, columns)]
    if view.weights is not None:
        names = [f"k = {number}" for number in range(view.weights.shape[1])]
        drawing = curves_or_map(view.weights, columns, names, name="weights of the components")
        shown = {"about": "The weights of the mixture.", "note": columns.note, "shown": drawing}
        sections.append(Section("Components", "inspection/plain.html", shown))
    return sections


def _nats(view: FramePredictorView, columns: FrameColumns) -> Section:
    if view.divergence is None:
        about, curves = NATS, {"nats": view.nats}
    else:
        about = BOUND
        curves = {"bound": view.nats, "frame": view.nats - view.divergence, "divergence": view.divergence}
    drawing = lines(curves, columns, name="nats of each frame")
    shown = {"about": about, "note": columns.note, "shown": drawing}
    return Section("Nats of each frame", "inspection/plain.html", shown)


def _expected(view: FramePredictorView, columns: FrameColumns) -> Section:
    """Of few features a drawing for each, of many a map of each kind of number."""
    frames, mean, deviation = view.frames[: len(columns)].astype(np.float64), view.mean, view.deviation
    about = EXPECTED + (FROM_THE_PRIOR if view.divergence is not None else "")
    if len(view.names) <= MOST_CURVES:
        about += " The pale range is the mean, less and plus the deviation."
        triples = zip(frames.T, mean.T, deviation.T, strict=True)
        drawings = [
            (name, lines({"frame": x, "mean": m, "deviation": s}, columns, ranges={"mean": (m - s, m + s)}, name=name))
            for name, (x, m, s) in zip(view.names, triples, strict=True)
        ]
    else:
        kinds = {"The mean": mean, "The deviation": deviation, "The frame, less the mean": frames - mean}
        kinds["The same, in deviations"] = kinds["The frame, less the mean"] / deviation
        drawings = [
            (name, feature_map(values, columns, view.names, name=name, signed=place > 1))
            for place, (name, values) in enumerate(kinds.items())
        ]
    shown = {"about": about, "note": columns.note, "drawings": drawings}
    return Section("What it expected", "tasks/frame_prediction/expected.html", shown)
