"""From a model of the next frame and a series to an `Inspection`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ensue.inspection.inspection import TITLE, Inspection
from ensue.inspection.markup import clipped, plain
from ensue.tasks.frame_prediction.page import series_sections
from ensue.tasks.frame_prediction.view import view_series

if TYPE_CHECKING:
    from ensue.tasks.frame_prediction.pipeline import FramePredictionPipeline


def inspect_series(pipeline: FramePredictionPipeline, given: Any) -> Inspection:
    """What happens in the model with a series: a path, an array, or a `Series`."""
    view = view_series(pipeline.model, pipeline.series_view(pipeline.only(given)))
    recipe = pipeline.recipe
    facts = pipeline.facts(recipe.describe())
    if pipeline.model.d_latent:
        facts["latent variables"] = f"{recipe.latent.kind}, {recipe.latent.size}"
    facts |= {"components": f"{recipe.head.components}"} if recipe.head.components > 1 else {}
    facts |= {"frames": f"{len(view.frames):,}", "nats per frame": plain(float(view.nats.mean()), 4)}
    return Inspection(clipped(view.series, TITLE), view, facts, series_sections(view))
