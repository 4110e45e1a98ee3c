"""Where a model that reads images in glimpses looks, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ReadSeries:
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
    def probability(self) -> float:
        """That of all symbols and the stop."""
        return float(np.prod(self.probabilities))

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
