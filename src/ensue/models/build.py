"""From a specification to modules: the one place where names of encoders map to classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from ensue.models.language_model import LanguageModel
from ensue.models.specification import (
    ElmanSpecification,
    EncoderSpecification,
    GRUSpecification,
    LSTMSpecification,
    ModelSpecification,
    RecurrentSpecification,
    TransformerSpecification,
    WindowSpecification,
)
from ensue.nn import (
    GRU,
    LSTM,
    Dropout,
    Elman,
    Pointwise,
    SequenceLayer,
    SoftmaxHead,
    Stack,
    TiedSoftmaxHead,
    TokenEmbedding,
    Transformer,
    VariationalDropout,
    WeightDrop,
    Window,
)


def build_language_model(specification: ModelSpecification, *, vocabulary_size: int) -> LanguageModel:
    """A language model with fresh random weights, drawn from torch's global generator."""
    embedding = TokenEmbedding(
        vocabulary_size,
        specification.d_embedding,
        dropout=specification.dropout_words,
        scale=specification.d_embedding**0.5 if specification.tied else 1.0,
    )
    layers = build_encoder(specification, d_in=embedding.d_out)
    if specification.tied:
        head: SoftmaxHead = TiedSoftmaxHead(layers.d_out, embedding)
    else:
        head = SoftmaxHead(layers.d_out, vocabulary_size)
    context = specification.context if isinstance(specification, TransformerSpecification) else None
    return LanguageModel(embedding, layers, head, context=context)


def build_encoder(specification: ModelSpecification, *, d_in: int) -> SequenceLayer:
    """The layers between features of size `d_in` and the head."""
    return BUILDERS[type(specification)](specification, d_in)


def _recurrent(cell: Callable[[Any, int, int], SequenceLayer]) -> Callable[[Any, int], SequenceLayer]:
    """Layers of one cell, with dropout before, between and after them."""

    def build(specification: RecurrentSpecification, d_in: int) -> SequenceLayer:
        dropout = VariationalDropout if specification.dropout_kind == "variational" else Dropout
        layers: list[SequenceLayer] = []
        if specification.dropout_input:
            layers.append(dropout(specification.dropout_input, d_in=d_in))
        for _ in range(specification.num_layers):
            layer = cell(specification, d_in, specification.d_model)
            d_in = layer.d_out
            layers.append(
                WeightDrop(layer, specification.dropout_recurrent) if specification.dropout_recurrent else layer
            )
            if specification.dropout:
                layers.append(dropout(specification.dropout, d_in=d_in))
        return Stack(layers)

    return build


def _window(specification: WindowSpecification, d_in: int) -> SequenceLayer:
    layers: list[SequenceLayer] = [Window(d_in, specification.d_model, size=specification.size)]
    for _ in range(specification.num_layers - 1):
        layers.append(
            Pointwise(
                nn.Sequential(nn.Linear(specification.d_model, specification.d_model), nn.Tanh()),
                d_in=specification.d_model,
            )
        )
    if specification.dropout:
        layers.append(Dropout(specification.dropout, d_in=specification.d_model))
    return Stack(layers)


def _transformer(specification: TransformerSpecification, d_in: int) -> SequenceLayer:
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
    )
    if d_in == specification.d_model:
        return transformer
    return Stack(
        [Pointwise(nn.Linear(d_in, specification.d_model), d_in=d_in, d_out=specification.d_model), transformer]
    )


BUILDERS: dict[type[EncoderSpecification], Callable[[Any, int], SequenceLayer]] = {
    WindowSpecification: _window,
    ElmanSpecification: _recurrent(lambda s, d_in, d_out: Elman(d_in, d_out, activation=s.activation)),
    LSTMSpecification: _recurrent(lambda s, d_in, d_out: LSTM(d_in, d_out)),
    GRUSpecification: _recurrent(lambda s, d_in, d_out: GRU(d_in, d_out, reset=s.reset)),
    TransformerSpecification: _transformer,
}
