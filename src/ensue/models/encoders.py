"""Functions that build layers from the tables `[encoder]`, `[decoder]` and `[attention]`."""

from collections.abc import Callable
from functools import partial

from torch import nn

from ensue.models import specification as tables
from ensue.nn import AdditiveAttention, BilinearAttention, CrossAttention, DotAttention, MultiHeadCrossAttention
from ensue.nn.attention.attentional import AttentionalLayer, InputFeeding
from ensue.nn.attention.transformer import Transformer
from ensue.nn.combinators import Bidirectional, Residual, Stack
from ensue.nn.dropout import Dropout, VariationalDropout, WeightDrop
from ensue.nn.layer import Pointwise, Recurrent, SequenceLayer
from ensue.nn.recurrent.context import FromContext, WithContext
from ensue.nn.recurrent.zoneout import Zoneout
from ensue.nn.window import Window
from ensue.processor import memory


def build_encoder(
    encoder: tables.EncoderSpecification, *, d_in: int, directions: tables.Directions = tables.ONE_WAY
) -> SequenceLayer:
    """Build the layers between features of size `d_in` and the head. Raises MemoryError if they exceed the memory."""
    _check_size(encoder)
    match encoder:
        case tables.RecurrentEncoder():
            return _build_recurrent(encoder, d_in, directions)
        case tables.WindowEncoder():
            return _build_window(encoder, d_in, directions)
        case tables.TransformerEncoder():
            return build_transformer(encoder, d_in=d_in, is_causal=not directions.bidirectional)
    return Pointwise(nn.Identity(), d_in=d_in)


def _check_size(specification: tables.EncoderSpecification) -> None:
    """Raise MemoryError if a lower bound of the size, 2 d² bytes for each layer but the first, exceeds the memory."""
    if isinstance(specification, tables.Encoder):
        layers, d = specification.num_layers, specification.d_model
        if 2 * (layers - 1) * d**2 > memory():
            raise MemoryError(f"{layers} layers of {d} features")


def _build_recurrent(specification: tables.RecurrentEncoder, d_in: int, directions: tables.Directions) -> SequenceLayer:
    dropout = VariationalDropout if specification.dropout_kind == "variational" else Dropout
    layers: list[SequenceLayer] = []
    if specification.dropout_input:
        layers.append(dropout(specification.dropout_input, d_in=d_in))
    for number in range(1 if specification.is_stack else specification.num_layers):
        layer = _build_directions(directions, partial(_build_cell, specification, d_in))
        layers.append(Residual(layer) if number and specification.residual else layer)
        d_in = layers[-1].d_out
        if specification.dropout:
            layers.append(dropout(specification.dropout, d_in=d_in))
    return Stack(layers)


def _build_cell(specification: tables.RecurrentEncoder, d_in: int) -> SequenceLayer:
    layer = specification.layer(d_in)
    if isinstance(specification, tables.ZoneoutEncoder):
        hidden = specification.zoneout_hidden
        cell = specification.zoneout_cell if isinstance(specification, tables.CellEncoder) else 0.0
        if hidden or cell:
            assert isinstance(layer, Recurrent)
            layer = Zoneout(layer, hidden=hidden, cell=cell)
    if isinstance(specification, tables.HiddenEncoder) and specification.dropout_recurrent:
        layer = WeightDrop(layer, specification.dropout_recurrent)
    return layer


def _build_window(specification: tables.WindowEncoder, d_in: int, directions: tables.Directions) -> SequenceLayer:
    layers = [_build_directions(directions, lambda: Window(d_in, specification.d_model, size=specification.size))]
    for _ in range(specification.num_layers - 1):
        below = layers[-1].d_out
        projection = nn.Sequential(nn.Linear(below, specification.d_model), nn.Tanh())
        layers.append(Pointwise(projection, d_in=below, d_out=specification.d_model))
    if specification.dropout:
        layers.append(Dropout(specification.dropout, d_in=layers[-1].d_out))
    return Stack(layers)


def _build_directions(directions: tables.Directions, layer: Callable[[], SequenceLayer]) -> SequenceLayer:
    return Bidirectional(layer(), layer(), merge=directions.merge) if directions.bidirectional else layer()


def build_transformer(
    specification: tables.TransformerEncoder, *, d_in: int, is_causal: bool = True, d_memory: int | None = None
) -> SequenceLayer:
    """Build a Transformer (with `d_memory` a decoder), after a projection if `d_in` is not the size of its input.

    Raises MemoryError like `build_encoder`.
    """
    _check_size(specification)
    transformer = Transformer(
        **specification.model_dump(exclude={"kind", "origin", "context"}), max_positions=specification.context,
        is_causal=is_causal, d_memory=d_memory,
    )  # fmt: skip
    if d_in == transformer.d_in:
        return transformer
    if specification.d_input is not None:
        raise ValueError(f"encoder.d_input is {specification.d_input}; expected {d_in}, the size of the features")
    d_model = specification.d_model
    return Stack([Pointwise(nn.Linear(d_in, d_model), d_in=d_in, d_out=d_model), transformer])


def outputs_halves(encoder: tables.EncoderSpecification | tables.OriginEncoder, directions: tables.Directions) -> bool:
    """Return whether the output features are the forward features followed by the backward features."""
    match encoder:
        case tables.TransformerEncoder() | tables.NoEncoder():
            return False
        case tables.WindowEncoder(num_layers=count) if count > 1:  # upper layers mix the directions
            return False
    return directions.bidirectional and directions.merge == "concatenate"


def build_decoder(
    decoder: tables.EncoderSpecification, attention: tables.Attention, *, d_in: int, d_memory: int, has_halves: bool
) -> SequenceLayer:
    """Build the layers of a decoder. With `has_halves`, each half of the memory's features belongs to one direction.

    Raises ValueError if the tables contradict each other.
    """
    match decoder:
        case tables.TransformerEncoder():
            if attention.kind != "scaled-dot" or attention.feeding:
                raise ValueError('a transformer as decoder needs attention.kind = "scaled-dot", without feeding')
            return build_transformer(decoder, d_in=d_in, d_memory=d_memory)
        case tables.WindowEncoder() | tables.NoEncoder():
            raise ValueError(f"decoder.kind {decoder.kind} has no state that can be initialized from the source")
    d_context = d_memory if attention.kind == "none" else decoder.d_model if attention.feeding else 0
    if decoder.d_model % attention.num_heads:
        raise ValueError(
            f"decoder.d_model {decoder.d_model} is not divisible by attention.num_heads {attention.num_heads}"
        )
    cells = build_encoder(decoder, d_in=d_in + d_context, directions=tables.ONE_WAY)
    initialized = FromContext(cells, d_memory, bidirectional=has_halves)
    if attention.kind == "none":
        return WithContext(initialized, d_memory, bidirectional=has_halves)
    attentional = AttentionalLayer(build_attention(attention, cells.d_out, d_memory))
    feeding = attention.feeding
    layers: list[SequenceLayer] = [InputFeeding(initialized, attentional)] if feeding else [initialized, attentional]
    if attention.dropout:
        layers.append(Dropout(attention.dropout, d_in=attentional.d_out))
    return Stack(layers)


def build_attention(attention: tables.Attention, d_in: int, d_memory: int) -> CrossAttention:
    """Build the attention of a recurrent decoder of `d_in` features. Raises ValueError for inconsistent sizes."""
    if attention.kind == "scaled-dot":
        return MultiHeadCrossAttention(d_in, d_memory, num_heads=attention.num_heads)
    kinds = {"dot": DotAttention, "bilinear": BilinearAttention, "additive": AdditiveAttention}
    return kinds[attention.kind](d_in, d_memory)
