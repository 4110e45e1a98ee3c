"""From a tagger of frames and a series to an `Inspection`."""

from __future__ import annotations

from typing import Any

from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Inspection
from ensue.models.modules import device_of
from ensue.tasks.frame_labeling.page import series_sections
from ensue.tasks.frame_labeling.view import view_series
from ensue.tasks.frames.pipeline import LabeledFramesPipeline


def inspect_series(pipeline: LabeledFramesPipeline, given: Any, head: str) -> Inspection:
    """A series (a path, an array, or a `Series`) in a tagger with this head."""
    series = pipeline.series_view(pipeline.only(given))
    view = view_series(pipeline.model, series, pipeline.labels, device_of(pipeline.model))
    facts = pipeline.facts(pipeline.recipe.describe())
    facts |= {"head": head, "frames": f"{len(view.frames):,}"}
    sections = series_sections(view, has_spans=pipeline.labels.has_spans)
    return Inspection(clipped(view.series, TITLE), view, facts, sections)
