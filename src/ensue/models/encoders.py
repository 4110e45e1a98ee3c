"""From the tables `[encoder]`, `[decoder]` and `[attention]` to layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from ensue.models.specification import (
    ONE_WAY,
    Attention,
    CellEncoder,
    CellsSpecification,
    Directions,
    Encoder,
    EncoderSpecification,
    HiddenEncoder,
    NoEncoder,
    OriginEncoder,
    RecurrentEncoder,
    TransformerEncoder,
    WindowEncoder,
    ZoneoutEncoder,
)
from ensue.nn import (
    AdditiveAttention,
    AttentionalLayer,
    Bidirectional,
    BilinearAttention,
    CrossAttention,
    DotAttention,
    Dropout,
    FromContext,
    InputFeeding,
    MultiHeadCrossAttention,
    Pointwise,
    Recurrent,
    Residual,
    SequenceLayer,
    Stack,
    Transformer,
    VariationalDropout,
    WeightDrop,
    Window,
    WithContext,
    Zoneout,
)
from ensue.processor import memory


def build_encoder(encoder: EncoderSpecification, *, d_in: int, directions: Directions = ONE_WAY) -> SequenceLayer:
    """The layers between features of size `d_in` and the head. Raises MemoryError if they exceed the memory."""
    _check_size(encoder)
    match encoder:
        case RecurrentEncoder():
            return _recurrent(encoder, d_in, directions)
        case WindowEncoder():
            return _window(encoder, d_in, directions)
        case TransformerEncoder():
            return build_transformer(encoder, d_in=d_in, is_causal=not directions.bidirectional)
    return Pointwise(nn.Identity(), d_in=d_in)


def _check_size(specification: EncoderSpecification) -> None:
    """Raises MemoryError if half a square matrix for each layer above the first is more than this machine has."""
    if isinstance(specification, Encoder):
        layers, d = specification.num_layers, specification.d_model
        if 2 * (layers - 1) * d**2 > memory():
            raise MemoryError(f"{layers} layers of {d} features")


def _recurrent(specification: RecurrentEncoder, d_in: int, directions: Directions) -> SequenceLayer:
    """Layers of one cell, with dropout before, between and after them."""
    dropout = VariationalDropout if specification.dropout_kind == "variational" else Dropout
    layers: list[SequenceLayer] = []
    if specification.dropout_input:
        layers.append(dropout(specification.dropout_input, d_in=d_in))
    for number in range(1 if specification.is_stack else specification.num_layers):
        layer = _in_directions(directions, partial(_regularized, specification, d_in))
        layers.append(Residual(layer) if number and specification.residual else layer)
        d_in = layers[-1].d_out
        if specification.dropout:
            layers.append(dropout(specification.dropout, d_in=d_in))
    return Stack(layers)


def _regularized(specification: RecurrentEncoder, d_in: int) -> SequenceLayer:
    """A layer, with zoneout and with dropout on its recurrent weights if the recipe has them."""
    layer = specification.layer(d_in)
    if isinstance(specification, ZoneoutEncoder):
        hidden = specification.zoneout_hidden
        cell = specification.zoneout_cell if isinstance(specification, CellEncoder) else 0.0
        if hidden or cell:
            assert isinstance(layer, Recurrent)
            layer = Zoneout(layer, hidden=hidden, cell=cell)
    if isinstance(specification, HiddenEncoder) and specification.dropout_recurrent:
        layer = WeightDrop(layer, specification.dropout_recurrent)
    return layer


def _window(specification: WindowEncoder, d_in: int, directions: Directions) -> SequenceLayer:
    layers = [
        _in_directions(directions, lambda: Window(d_in, specification.d_model, size=specification.size)),
    ]
    for _ in range(specification.num_layers - 1):
        below = layers[-1].d_out
        projection = nn.Sequential(nn.Linear(below, specification.d_model), nn.Tanh())
        layers.append(Pointwise(projection, d_in=below, d_out=specification.d_model))
    if specification.dropout:
        layers.append(Dropout(specification.dropout, d_in=layers[-1].d_out))
    return Stack(layers)


def _in_directions(directions: Directions, layer: Callable[[], SequenceLayer]) -> SequenceLayer:
    """One layer from left to right, or two in both directions."""
    return Bidirectional(layer(), layer(), merge=directions.merge) if directions.bidirectional else layer()


def build_transformer(
    specification: TransformerEncoder, *, d_in: int, is_causal: bool = True, d_memory: int | None = None
) -> SequenceLayer:
    """The layers of a Transformer, behind a projection of the input if it has another size. With `d_memory`, a decoder.

    Raises MemoryError as `build_encoder`.
    """
    _check_size(specification)
    transformer = Transformer(
        **specification.model_dump(exclude={"kind", "origin", "context"}),
        max_positions=specification.context,
        is_causal=is_causal,
        d_memory=d_memory,
    )
    if d_in == transformer.d_in:
        return transformer
    if specification.d_input is not None:
        raise ValueError(f"encoder.d_input is {specification.d_input}, and the features have {d_in}")
    return Stack(
        [Pointwise(nn.Linear(d_in, specification.d_model), d_in=d_in, d_out=specification.d_model), transformer]
    )


def in_two_halves(encoder: EncoderSpecification | OriginEncoder, directions: Directions) -> bool:
    """Whether each half of the output is of one direction. Further layers over a window mix the directions."""
    match encoder:
        case TransformerEncoder() | NoEncoder():
            return False
        case WindowEncoder(num_layers=count) if count > 1:
            return False
    return directions.bidirectional and directions.merge == "concatenate"


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
    return _begun(decoder, attention, d_in, d_memory, both_ways)


def _begun(
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
