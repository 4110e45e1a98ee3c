"""From the tables `[decoder]` and `[attention]` to layers that attend to a memory."""

from __future__ import annotations

from ensue.models.encoders import build_encoder, build_transformer
from ensue.models.specification import (
    ONE_WAY,
    Attention,
    CellsSpecification,
    EncoderSpecification,
    NoEncoder,
    TransformerEncoder,
    WindowEncoder,
)
from ensue.nn import (
    AdditiveAttention,
    AttentionalLayer,
    BilinearAttention,
    CrossAttention,
    DotAttention,
    Dropout,
    FromContext,
    InputFeeding,
    MultiHeadCrossAttention,
    SequenceLayer,
    Stack,
    WithContext,
)


def build_decoder(
    decoder: EncoderSpecification, attention: Attention, *, d_in: int, d_memory: int, both_ways: bool
) -> SequenceLayer:
    """The layers of a decoder. `both_ways`: the halves of the memory's features are of the two directions.

    Raises ValueError for tables that do not go together.
    """
    match decoder:
        case TransformerEncoder():
            if attention.kind != "scaled-dot" or attention.feeding:
                raise ValueError('a transformer as decoder has attention.kind = "scaled-dot", without feeding')
            return build_transformer(decoder, d_in=d_in, d_memory=d_memory)
        case WindowEncoder() | NoEncoder():
            raise ValueError(f"decoder.kind {decoder.kind} has no state that could begin with the source")
    return _recurrent(decoder, attention, d_in, d_memory, both_ways)


def _recurrent(
    decoder: CellsSpecification, attention: Attention, d_in: int, d_memory: int, both_ways: bool
) -> SequenceLayer:
    """Layers that begin with the source's last state. Attention follows them, or is a part of their step."""
    d_more = d_memory if attention.kind == "none" else decoder.d_model if attention.feeding else 0
    if decoder.d_model % attention.num_heads:
        raise ValueError(f"attention.num_heads {attention.num_heads} cannot share decoder.d_model {decoder.d_model}")
    cells = build_encoder(decoder, d_in=d_in + d_more, directions=ONE_WAY)
    begun = FromContext(cells, d_memory, bidirectional=both_ways)
    if attention.kind == "none":
        return WithContext(begun, d_memory, bidirectional=both_ways)
    attentional = AttentionalLayer(build_attention(attention, cells.d_out, d_memory))
    layers: list[SequenceLayer] = [InputFeeding(begun, attentional)] if attention.feeding else [begun, attentional]
    return Stack([*layers, *([Dropout(attention.dropout, d_in=attentional.d_out)] if attention.dropout else [])])


def build_attention(attention: Attention, d_in: int, d_memory: int) -> CrossAttention:
    """The attention of a recurrent decoder of `d_in` features. Raises ValueError for sizes that do not fit."""
    match attention.kind:
        case "dot":
            return DotAttention(d_in, d_memory)
        case "bilinear":
            return BilinearAttention(d_in, d_memory)
        case "additive":
            return AdditiveAttention(d_in, d_memory)
    return MultiHeadCrossAttention(d_in, d_memory, num_heads=attention.num_heads)
