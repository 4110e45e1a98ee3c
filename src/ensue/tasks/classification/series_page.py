"""The sections of a page for a series in a classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ensue.inspection.colors import color_of
from ensue.inspection.drawing import FrameColumns
from ensue.inspection.encoder_page import Seen, encoder_sections
from ensue.inspection.frame_drawing import bars
from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Inspection, Section
from ensue.inspection.series import SeriesView, series_section
from ensue.models.classifier import Classifier
from ensue.tasks.classification.page import labels_section
from ensue.tasks.classification.series_view import MOST_INTEGRATED, FrameClassifierView, view_series
from ensue.text.classes import Classes

GRADIENTS = (
    "The gradient of the log-odds of “{}” by the features of a frame, times the features (as they are normalized: 0 is "
    "the mean of the training data, and what is missing). What is warm speaks for the label, what is cool against it."
)
ATTENTION = "The series is a weighted mean of the outputs at its frames. The weights sum to 1."
MAXIMA = (
    "The series has the maximum of each output over all frames. A bar is the share of the outputs that a frame gave."
)


def inspect_series(model: Classifier, series: SeriesView, labels: Classes, facts: Mapping[str, str]) -> Inspection:
    """A series in a classifier; `facts` are those of the model."""
    view = view_series(model, series)
    colors = {name: color_of(name) for name in labels.names}
    threshold = labels.threshold if labels.multiple else None
    sections = series_sections(view, labels.names, colors=colors, threshold=threshold)
    return Inspection(clipped(view.series, TITLE), view, {**facts, "frames": f"{len(view.frames):,}"}, sections)


def series_sections(
    view: FrameClassifierView, names: Sequence[str], *, colors: Mapping[str, str], threshold: float | None
) -> list[Section]:
    """All sections. `threshold` is that of several labels; None if a series has one label."""
    columns, label = view.columns, names[view.label]
    sections = [
        series_section(view, columns),
        labels_section(view.probabilities, view.label, names, colors=colors, threshold=threshold, what="series"),
        _bars(f"What each frame does for “{label}”", GRADIENTS.format(label), view.gradients, columns, "contribution"),
    ]
    if view.integrated is None:
        note = f"Those of series of more than {MOST_INTEGRATED:,} frames are not computed."
        sections.append(Section("Integrated gradients", "inspection/plain.html", {"note": note, "shown": ""}))
    else:
        drawing = bars(view.integrated.shares, columns, name="integrated gradients", what="share")
        shown = {"label": label, "sums": view.integrated, "drawing": drawing, "note": columns.note}
        sections.append(Section("Integrated gradients", "tasks/classification/frames_integrated.html", shown))
    if view.attention is not None:
        sections.append(_bars("Attention pooling", ATTENTION, view.attention, columns, "weight"))
    if view.maxima is not None:
        sections.append(_bars("Max pooling", MAXIMA, view.maxima, columns, "share of maxima"))
    return [*sections, *encoder_sections([Seen(columns, view.traces, view.heads)])]


def _bars(heading: str, about: str, values: NDArray[np.float64], columns: FrameColumns, what: str) -> Section:
    drawing = bars(values, columns, name=heading, what=what)
    return Section(heading, "inspection/plain.html", {"about": about, "note": columns.note, "shown": drawing})
