"""From the tables of a recipe to a painter."""

from __future__ import annotations

from ensue.models.encoders import build_encoder
from ensue.models.painter import ImageSize, Painter, WholeReader, WholeWriter, WindowReader, WindowWriter
from ensue.models.painter_specification import CanvasSpecification, CellsSpecification


def build_painter(
    canvas: CanvasSpecification, encoder: CellsSpecification, decoder: CellsSpecification, *, size: ImageSize
) -> Painter:
    """A painter from its tables. Raises ValueError for a window that is larger than the images."""
    strokes = build_encoder(decoder, d_in=canvas.d_latent)
    d, attends = strokes.d_out, canvas.attention
    reader = WindowReader(size, d, canvas.read) if attends else WholeReader(size)
    writer = WindowWriter(size, d, canvas.write) if attends else WholeWriter(size, d)
    glimpses = build_encoder(encoder, d_in=reader.d_out + d)
    return Painter(glimpses, strokes, reader, writer, size=size, glimpses=canvas.glimpses)
