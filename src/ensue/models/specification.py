"""The `[model]` table of a recipe: which encoder, how large, how regularized. Only data; `build.py` makes the modules.

Unknown keys are errors, also those that only another encoder has.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Size = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]


class EncoderSpecification(BaseModel):
    """What all encoders have: sizes, softmax and dropout."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    d_embedding: Size = 64
    """Features of a token's vector."""
    d_model: Size = 256
    """Features of a layer's output."""
    num_layers: Size = 1
    """Layers, one after another."""
    tied: bool = False
    """Whether the softmax uses the embedding's table (through a projection where the sizes differ)."""
    dropout: Share = 0.0
    """On the output of every layer."""
    dropout_words: Share = 0.0
    """Share of the vocabulary whose embeddings are zero in a training step."""


class RecurrentSpecification(EncoderSpecification):
    """What recurrent encoders have."""

    dropout_kind: Literal["plain", "variational"] = "plain"
    """Fresh at every position, or one mask for a segment."""
    dropout_input: Share = 0.0
    """On what enters the first layer."""
    dropout_recurrent: Share = 0.0
    """On the recurrent weights (weight-drop)."""


class WindowSpecification(EncoderSpecification):
    encoder: Literal["window"]
    size: Size = 5
    """How many positions the window holds, N."""


class ElmanSpecification(RecurrentSpecification):
    encoder: Literal["elman"]
    activation: Literal["tanh", "relu"] = "tanh"
    """The nonlinearity."""


class LSTMSpecification(RecurrentSpecification):
    encoder: Literal["lstm"]


class GRUSpecification(RecurrentSpecification):
    encoder: Literal["gru"]
    reset: Literal["before", "after"] = "after"
    """The reset gate stands before the recurrent product (the paper) or after it (the vendors' kernels)."""


class TransformerSpecification(EncoderSpecification):
    encoder: Literal["transformer"]
    context: Size = 128
    """Longest context, in tokens: the length of a training block and the reach of attention at use."""
    num_heads: Size = 4
    """Heads of the attention, which share `d_model`."""
    d_feedforward: Size | None = None
    """Width of the feed-forward layers; without it 4 · d_model."""
    positions: Literal["learned", "sinusoidal", "rotary"] = "learned"
    """How a token knows its place."""
    norm: Literal["pre", "post"] = "pre"
    """Where the normalization stands: before each sublayer, or after it as published in 2017."""
    activation: Literal["relu", "gelu"] = "gelu"
    """The nonlinearity."""


ModelSpecification = Annotated[
    WindowSpecification | ElmanSpecification | LSTMSpecification | GRUSpecification | TransformerSpecification,
    Field(discriminator="encoder"),
]
