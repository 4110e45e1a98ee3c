"""From a model of the next frame and a series to an `Inspection`."""

from __future__ import annotations

from collections.abc import Mapping

from ensue.inspection.inspection import TITLE, Inspection
from ensue.inspection.markup import clipped, plain
from ensue.inspection.series import SeriesView
from ensue.models.frame_predictor import FramePredictor
from ensue.tasks.frame_prediction.page import series_sections
from ensue.tasks.frame_prediction.recipe import FramePredictionRecipe
from ensue.tasks.frame_prediction.view import view_series


def inspect_series(
    model: FramePredictor, series: SeriesView, recipe: FramePredictionRecipe, facts: Mapping[str, str]
) -> Inspection:
    """A series in a model of this recipe; `facts` are those of the model."""
    view = view_series(model, series)
    more = {"latent variables": f"{recipe.latent.kind}, {recipe.latent.size}"} if model.d_latent else {}
    more |= {"components": f"{recipe.head.components}"} if recipe.head.components > 1 else {}
    more |= {"frames": f"{len(view.frames):,}", "nats per frame": plain(float(view.nats.mean()), 4)}
    return Inspection(clipped(view.series, TITLE), view, {**facts, **more}, series_sections(view))
