"""From the tables of a recipe to captioners."""

from __future__ import annotations

from ensue.models.build_encoder_decoder import target_embedding, target_softmax
from ensue.models.caption_specification import GridSpecification, LookingSpecification
from ensue.models.captioner import Captioner
from ensue.models.decoders import build_attention, build_decoder
from ensue.models.encoders import build_encoder
from ensue.models.frame_features import FrameFeatures
from ensue.models.specification import (
    ONE_WAY,
    Directions,
    EncoderSpecification,
    NoEncoder,
    PairTokens,
    TextHead,
    TransformerEncoder,
    WindowEncoder,
)
from ensue.nn import AttentionBefore, Dropout, FromContext, HardAttention, ImageGrid, SequenceLayer, Stack


def build_captioner(
    features: FrameFeatures,
    grid: GridSpecification,
    encoder: EncoderSpecification,
    directions: Directions,
    tokens: PairTokens,
    decoder: EncoderSpecification,
    attention: LookingSpecification,
    head: TextHead,
    *,
    rows: int,
    target_size: int,
) -> Captioner:
    """A captioner from its tables, for images of so many `rows`. Raises ValueError for tables that do not go
    together.
    """
    if head.copying:
        raise ValueError("head.copying copies words of a source; a caption's source has none")
    target = target_embedding(tokens, target_size)
    places = None
    if grid.kind != "none":
        places = ImageGrid(
            rows, features.d_out, colors=grid.colors, channels=grid.channels, halvings=grid.halvings,
            dropout=grid.dropout,
        )  # fmt: skip
    d_read = features.d_out if places is None else places.d_out
    reads = build_encoder(encoder, d_in=d_read, directions=directions)
    writes = _decoder(decoder, attention, d_in=target.d_out, d_memory=reads.d_out)
    softmax = target_softmax(tokens, target, d_in=writes.d_out)
    return Captioner(
        features, places, reads, target, writes, softmax, label_smoothing=head.label_smoothing,
        doubly_stochastic=attention.doubly_stochastic, entropy=attention.entropy,
    )  # fmt: skip


def _decoder(
    decoder: EncoderSpecification, attention: LookingSpecification, *, d_in: int, d_memory: int
) -> SequenceLayer:
    """The layers of a decoder that looks before its step, or of one like those of `build_decoder`."""
    if (
        not attention.before
        or attention.kind == "none"
        or isinstance(decoder, TransformerEncoder | WindowEncoder | NoEncoder)
    ):
        return build_decoder(decoder, attention, d_in=d_in, d_memory=d_memory, both_ways=False)
    asks = (
        HardAttention(decoder.d_model, d_memory, expected=attention.expected)
        if attention.hard
        else build_attention(attention, decoder.d_model, d_memory)
    )
    cells = build_encoder(decoder, d_in=d_in + asks.d_out, directions=ONE_WAY)
    layer = AttentionBefore(FromContext(cells, d_memory, mean=True), asks, d_out=decoder.d_model, gated=attention.gate)
    return Stack([layer, Dropout(attention.dropout, d_in=layer.d_out)]) if attention.dropout else layer
