"""Where a model that reads images in glimpses looks, in numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray


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
