"""From a model and images to an `Inspection` of where it looks in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ensue.data.frames.series import Series
from ensue.inspection.inspection import Inspection
from ensue.inspection.page import Section
from ensue.inspection.pixels import data_address
from ensue.models.frame_specification import GlimpseSpecification
from ensue.tasks.glimpses.view import GlimpsesView, ReadSeries, SymbolView

MOST_IMAGES = 12
"""The most images on a page."""
WIDTH = 720
"""Pixels of the width of a drawing, at most."""


def inspect_glimpses(
    read: Sequence[tuple[Series, ReadSeries]], glimpses: GlimpseSpecification, facts: Mapping[str, str]
) -> Inspection:
    """Places in the first of the images that were read; `facts` are those of the model."""
    views = [_view(glimpses.colors, series, found) for series, found in read[:MOST_IMAGES]]
    more = {"images": f"the first {MOST_IMAGES}"} if len(read) > MOST_IMAGES else {}
    sections = [Section(view.series, "tasks/glimpses/path.html", _drawing(view, glimpses.size)) for view in views]
    title = views[0].series if len(views) == 1 else f"{len(views)} images"
    return Inspection(title, views, {**facts, **more}, sections)


def _view(colors: int, series: Series, found: ReadSeries) -> GlimpsesView:
    pixels = series.frames.reshape(len(series.frames), -1, colors)
    places = [[(float(down), float(right)) for down, right in of_symbol] for of_symbol in found.places]
    symbols = [SymbolView(*one) for one in zip((*found.symbols, ""), found.probabilities, places, strict=False)]
    return GlimpsesView(series.name, " ".join(dict.fromkeys(series.labels)), symbols, pixels)


def _drawing(view: GlimpsesView, size: int) -> dict[str, Any]:
    rows, columns, channels = view.pixels.shape
    shown = view.pixels if channels == 3 else view.pixels.mean(2, keepdims=True)
    zoom = max(1, min(8, WIDTH // columns))
    address = data_address(np.nan_to_num(shown))
    return {"view": view, "address": address, "rows": rows, "columns": columns, "size": size, "zoom": zoom}
