"""From a classifier of frames and a series to an `Inspection`."""

from __future__ import annotations

from typing import Any

from ensue.inspection.colors import color_of
from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Inspection
from ensue.models.modules import device_of
from ensue.tasks.frame_classification.page import series_sections
from ensue.tasks.frame_classification.view import view_series
from ensue.tasks.frames.pipeline import LabeledFramesPipeline


def inspect_series(pipeline: LabeledFramesPipeline, given: Any, head: str) -> Inspection:
    """A series (a path, an array, or a `Series`) in a classifier with this head."""
    series, labels = pipeline.series_view(pipeline.only(given)), pipeline.labels
    view = view_series(pipeline.model, series, device_of(pipeline.model))
    colors = {name: color_of(name) for name in labels.names}
    sections = series_sections(
        view, labels.names, colors=colors, threshold=labels.threshold if labels.multiple else None
    )
    facts = pipeline.facts(pipeline.recipe.describe())
    facts |= {"head": head, "frames": f"{len(view.frames):,}"}
    return Inspection(clipped(view.series, TITLE), view, facts, sections)
