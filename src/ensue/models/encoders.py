"""From a specification to layers: the one place where names of encoders map to classes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from ensue.models.specification import (
    Directions,
    Encoder,
    ModelSpecification,
    NoReader,
    ReaderSpecification,
    RecurrentEncoder,
    TransformerEncoder,
    WindowEncoder,
)
from ensue.nn import (
    GRU,
    LSTM,
    Bidirectional,
    Dropout,
    Elman,
    Pointwise,
    SequenceLayer,
    Stack,
    Transformer,
    VariationalDropout,
    WeightDrop,
    Window,
)


def build_encoder(specification: ModelSpecification | ReaderSpecification, *, d_in: int) -> SequenceLayer:
    """The layers between features of size `d_in` and the head."""
    return ENCODERS[specification.encoder](specification, d_in)


def _recurrent(cell: Callable[[Any, int, int], SequenceLayer]) -> Callable[[Any, int], SequenceLayer]:
    """Layers of one cell, with dropout before, between and after them."""

    def one_way(specification: RecurrentEncoder, d_in: int) -> SequenceLayer:
        layer = cell(specification, d_in, specification.d_model)
        return WeightDrop(layer, specification.dropout_recurrent) if specification.dropout_recurrent else layer

    def build(specification: RecurrentEncoder, d_in: int) -> SequenceLayer:
        dropout = VariationalDropout if specification.dropout_kind == "variational" else Dropout
        layers: list[SequenceLayer] = []
        if specification.dropout_input:
            layers.append(dropout(specification.dropout_input, d_in=d_in))
        for _ in range(specification.num_layers):
            layers.append(_in_directions(specification, partial(one_way, specification, d_in)))
            d_in = layers[-1].d_out
            if specification.dropout:
                layers.append(dropout(specification.dropout, d_in=d_in))
        return Stack(layers)

    return build


def _window(specification: WindowEncoder, d_in: int) -> SequenceLayer:
    layers = [
        _in_directions(specification, lambda: Window(d_in, specification.d_model, size=specification.size)),
    ]
    for _ in range(specification.num_layers - 1):
        below = layers[-1].d_out
        projection = nn.Sequential(nn.Linear(below, specification.d_model), nn.Tanh())
        layers.append(Pointwise(projection, d_in=below, d_out=specification.d_model))
    if specification.dropout:
        layers.append(Dropout(specification.dropout, d_in=layers[-1].d_out))
    return Stack(layers)


def _in_directions(specification: Encoder, layer: Callable[[], SequenceLayer]) -> SequenceLayer:
    """One layer from left to right, or two in both directions where the specification asks for them."""
    if isinstance(specification, Directions) and specification.bidirectional:
        return Bidirectional(layer(), layer(), merge=specification.merge)
    return layer()


def _transformer(specification: TransformerEncoder, d_in: int) -> SequenceLayer:
    transformer = Transformer(
        specification.d_model,
        num_heads=specification.num_heads,
        num_layers=specification.num_layers,
        d_feedforward=specification.d_feedforward,
        positions=specification.positions,
        max_positions=specification.context,
        norm=specification.norm,
        activation=specification.activation,
        dropout=specification.dropout,
        is_causal=not (isinstance(specification, Directions) and specification.bidirectional),
    )
    if d_in == specification.d_model:
        return transformer
    return Stack(
        [Pointwise(nn.Linear(d_in, specification.d_model), d_in=d_in, d_out=specification.d_model), transformer]
    )


def _none(specification: NoReader, d_in: int) -> SequenceLayer:
    return Pointwise(nn.Identity(), d_in=d_in)


ENCODERS: dict[str, Callable[[Any, int], SequenceLayer]] = {
    "window": _window,
    "elman": _recurrent(lambda s, d_in, d_out: Elman(d_in, d_out, activation=s.activation)),
    "lstm": _recurrent(lambda s, d_in, d_out: LSTM(d_in, d_out)),
    "gru": _recurrent(lambda s, d_in, d_out: GRU(d_in, d_out, reset=s.reset)),
    "transformer": _transformer,
    "none": _none,
}
