"""From the tables of a recipe to a model that reads images in glimpses."""

from __future__ import annotations

from ensue.models.encoders import build_encoder
from ensue.models.frame_features import FrameFeatures
from ensue.models.glimpse_reader import GlimpseReader
from ensue.models.glimpse_specification import GlimpseSpecification
from ensue.models.specification import Encoder, EncoderSpecification
from ensue.nn.glimpses import Glimpses, GlimpseVector, ImageVector


def build_glimpse_reader(
    features: FrameFeatures, encoder: EncoderSpecification, table: GlimpseSpecification, *, rows: int, num_symbols: int
) -> GlimpseReader:
    """The model from its tables, for images of so many rows. Both recurrent layers are of the same kind."""
    assert isinstance(encoder, Encoder)
    reader = build_encoder(encoder, d_in=encoder.d_model)
    planner = build_encoder(encoder, d_in=reader.d_out)
    glimpses = Glimpses(table.size, table.scales)
    vector = GlimpseVector(table.scales * table.colors, table.size, tuple(table.convolutions), reader.d_in)
    height, width = (-(-side // table.view) for side in (rows, features.d_out // table.colors))
    view = ImageVector(table.colors, height, width, tuple(table.view_convolutions), planner.d_in)
    return GlimpseReader(features, glimpses, vector, view, reader, planner, num_symbols, table=table)
