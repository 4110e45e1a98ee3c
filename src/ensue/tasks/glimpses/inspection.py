"""From a model and images to an `Inspection` of where it looks in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ensue.data.frames.series import Series
from ensue.errors import DataError
from ensue.inspection.inspection import Inspection
from ensue.inspection.page import Section
from ensue.inspection.pixels import data_address
from ensue.tasks.glimpses.view import GlimpsesView, SymbolView

if TYPE_CHECKING:
    from ensue.tasks.glimpses.pipeline import GlimpsesPipeline, ReadSeries

MOST_IMAGES = 12
"""The most images on a page."""
WIDTH = 720
"""Pixels of the width of a drawing, at most."""


def inspect_glimpses(
    pipeline: GlimpsesPipeline, read: Sequence[tuple[Series, ReadSeries, float]], location: str
) -> Inspection:
    """Where the model looks in the first of the images that it has read. Raises DataError for none."""
    if not read:
        raise DataError("no series in it", location)
    views = [_view(pipeline, series, found) for series, found, _ in read[:MOST_IMAGES]]
    facts = {**pipeline.facts(pipeline.recipe.describe()), "symbols": f"{len(pipeline.labels):,}"}
    if len(read) > MOST_IMAGES:
        facts["images"] = f"the first {MOST_IMAGES}"
    size = pipeline.recipe.glimpses.size
    sections = [Section(view.series, "tasks/glimpses/path.html", _drawing(view, size)) for view in views]
    return Inspection(views[0].series if len(views) == 1 else f"{len(views)} images", views, facts, sections)


def _view(pipeline: GlimpsesPipeline, series: Series, found: ReadSeries) -> GlimpsesView:
    pixels = series.frames.reshape(len(series.frames), -1, pipeline.recipe.glimpses.colors)
    places = [[(float(down), float(right)) for down, right in of_symbol] for of_symbol in found.places]
    symbols = [SymbolView(*one) for one in zip((*found.symbols, ""), found.probabilities, places, strict=False)]
    return GlimpsesView(series.name, " ".join(dict.fromkeys(series.labels)), symbols, pixels)


def _drawing(view: GlimpsesView, size: int) -> dict[str, Any]:
    rows, columns, channels = view.pixels.shape
    shown = view.pixels if channels == 3 else view.pixels.mean(2, keepdims=True)
    zoom = max(1, min(8, WIDTH // columns))
    address = data_address(np.nan_to_num(shown))
    return {"view": view, "address": address, "rows": rows, "columns": columns, "size": size, "zoom": zoom}
