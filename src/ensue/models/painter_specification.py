"""The tables of recipes of models that paint: `[encoder]`, `[decoder]` and `[canvas]`. `build_painter.py` makes modules
of them.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ensue.models.specification import (
    ClockworkEncoder,
    ElmanEncoder,
    GRUEncoder,
    LSTMEncoder,
    PlainEncoder,
    ProjectedEncoder,
    QRNNEncoder,
    Size,
    Specification,
)

CellsSpecification = Annotated[
    ElmanEncoder | LSTMEncoder | ProjectedEncoder | GRUEncoder | ClockworkEncoder | PlainEncoder | QRNNEncoder,
    Field(discriminator="kind"),
]
"""Recurrent layers, which are run step by step."""
Glimpses = Annotated[int, Field(ge=1, le=10_000)]


class CanvasSpecification(Specification):
    """The table `[canvas]`: how an image is painted."""

    glimpses: Glimpses = 64
    """The number of glimpses T, and of strokes."""
    d_latent: Size = 100
    """Features of the latent vector of a stroke."""
    attention: bool = True
    """Whether the image is read and written in windows, which the decoder places; if not, as a whole."""
    read: Size = 2
    """The side of the window that is read, in filters."""
    write: Size = 5
    """The side of the window that is written, in filters."""
    colors: Annotated[int, Field(ge=1, le=1000)] = 1
    """The colors of a pixel: 1 for gray images, 3 for colored ones."""
