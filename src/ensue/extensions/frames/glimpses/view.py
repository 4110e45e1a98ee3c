"""Places at which a model looks in images, in numbers and as sections of a page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.extensions.frames.data.series import Series
from ensue.extensions.frames.page import data_address
from ensue.inspection.notebook import Shown
from ensue.inspection.page import Section


@dataclass(frozen=True)
class ReadSeries(Shown):
    """An image, by its name, with its symbols, their probabilities with that of the stop, and the places (S, N, 2) of
    the glimpses for each, (down, right), in pixels from the upper left corner.
    """

    series: str
    symbols: tuple[str, ...]
    probabilities: tuple[float, ...] = field(repr=False)
    places: NDArray[np.float32] = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        """The symbols with blanks between them."""
        return " ".join(self.symbols)

    @property
    def line(self) -> str:
        """The image and its symbols."""
        return f"{self.series}\t{self.text}"

    @property
    def probability(self) -> float:
        """That of all symbols and the stop."""
        return float(np.prod(self.probabilities))

    def _rows(self) -> list[dict[str, Any]]:
        return [{"series": self.series, "text": self.text, "probability": self.probability}]

    def as_json(self) -> dict[str, Any]:
        """The prediction as JSON values."""
        return {
            "series": self.series, "text": self.text, "symbols": list(self.symbols),
            "probabilities": [round(share, 6) for share in self.probabilities],
            "places": np.round(self.places.astype(np.float64), 2).tolist(),
        }  # fmt: skip


class SymbolView(NamedTuple):
    """A symbol ("" for the stop) with its probability, and the places (down, right) of its glimpses, in pixels."""

    symbol: str
    probability: float
    places: list[tuple[float, float]]


class GlimpsesView(NamedTuple):
    """An image (H, W, C), its symbols with the stop, and the caption that its file has ("" for none)."""

    series: str
    caption: str
    symbols: list[SymbolView]
    pixels: NDArray[Any]


MOST_IMAGES = 12
"""The most images on a page."""
WIDTH = 720
"""Pixels of the width of a drawing, at most."""


def view_image(series: Series, found: ReadSeries, colors: int) -> GlimpsesView:
    """The view of an image that was read."""
    pixels = series.frames.reshape(len(series.frames), -1, colors)
    places = [[(float(down), float(right)) for down, right in of_symbol] for of_symbol in found.places]
    symbols = [SymbolView(*one) for one in zip((*found.symbols, ""), found.probabilities, places, strict=False)]
    return GlimpsesView(series.name, " ".join(dict.fromkeys(series.labels)), symbols, pixels)


def image_section(view: GlimpsesView, size: int) -> Section:
    """The drawing of an image, for patches of this size."""
    rows, columns, _ = view.pixels.shape
    zoom = max(1, min(8, WIDTH // columns))
    sizes = {"rows": rows, "columns": columns, "size": size, "zoom": zoom}
    return Section(
        view.series,
        "extensions/frames/glimpses/path.html",
        {"view": view, "address": data_address(view.pixels), **sizes},
    )
