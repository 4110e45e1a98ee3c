"""The tables of a recipe that describe its layers: `[encoder]`, `[tokens]`, `[directions]`.

Only data; `build.py` makes the modules. An encoder's own keys stand in its class; encoders with the same keys share
one. Its table is the same in every task. Unknown keys are errors, also those that only another encoder has.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

LARGEST = 1_000_000
Size = Annotated[int, Field(ge=1, le=LARGEST)]
Layers = Annotated[int, Field(ge=1, le=1000)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Specification(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Encoder(Specification):
    """What all encoders have: sizes and dropout."""

    kind: str
    d_model: Size = 256
    """Features of a layer's output (of each direction, where there are two)."""
    num_layers: Layers = 1
    """Layers, one after another."""
    dropout: Share = 0.0
    """On the output of every layer; of a window network and of a depth-gated or grid stack on that of the last."""


class RecurrentEncoder(Encoder):
    """What recurrent encoders have."""

    dropout_kind: Literal["plain", "variational"] = "plain"
    """Fresh at every position, or one mask for a whole segment or text."""
    dropout_input: Share = 0.0
    """On what enters the first layer."""


class PlainEncoder(RecurrentEncoder):
    """Recurrent encoders without keys of their own; depth-gated and grid are stacks of `num_layers`."""

    kind: Literal["depth-gated", "grid", "mingru", "minlstm"]


class QRNNEncoder(RecurrentEncoder):
    kind: Literal["qrnn"]
    size: Size = 2
    """How many positions the convolution sees: the last N."""


class HiddenEncoder(RecurrentEncoder):
    """What encoders have whose recurrent weights are one matrix, `weight_hidden`."""

    dropout_recurrent: Share = 0.0
    """On the recurrent weights (weight-drop)."""


class ClockworkEncoder(HiddenEncoder):
    kind: Literal["clockwork"]
    periods: list[Size] = Field(default=[1, 2, 4, 8, 16, 32, 64, 128], min_length=1)
    """Positions from one update of a module to its next, each a divisor of the next; modules share `d_model` evenly."""

    @model_validator(mode="after")
    def _modules(self) -> Self:
        if self.d_model % len(self.periods):
            raise ValueError(f"has d_model {self.d_model}, which {len(self.periods)} periods cannot share evenly")
        if any(slow <= fast or slow % fast for fast, slow in pairwise(self.periods)):
            raise ValueError(f"has periods of which not each is a divisor of the next: {self.periods}")
        return self


class ZoneoutEncoder(HiddenEncoder):
    """What encoders have whose units may all be held."""

    zoneout_hidden: Share = 0.0
    """Chance that a unit of the hidden state keeps its old value at a position; at use, the old value's weight."""


class CellEncoder(ZoneoutEncoder):
    """What encoders have that carry a cell beside the hidden state."""

    zoneout_cell: Share = 0.0
    """Chance that a cell keeps its old value at a position; at use, the old value's weight."""


class WindowEncoder(Encoder):
    kind: Literal["window"]
    size: Size = 5
    """How many positions the window holds, N (in each direction, where there are two)."""


class ElmanEncoder(ZoneoutEncoder):
    kind: Literal["elman"]
    activation: Literal["tanh", "relu"] = "tanh"
    """The nonlinearity."""


class LSTMEncoder(CellEncoder):
    kind: Literal["lstm", "peephole", "coupled", "layer-norm"]


class ProjectedEncoder(CellEncoder):
    kind: Literal["projected"]
    d_cell: Size | None = None
    """Cells of a layer, which are projected to `d_model` features; without it 2 · d_model."""


class GRUEncoder(ZoneoutEncoder):
    kind: Literal["gru"]
    reset: Literal["before", "after"] = "after"
    """The reset gate stands before the recurrent product (the paper) or after it (the vendors' kernels)."""


class TransformerEncoder(Encoder):
    kind: Literal["transformer"]
    context: Size = 128
    """Longest context, in tokens: the length of a training block and the reach of attention at use. Where whole texts
    are read: how many positions there are, if they are learned."""
    num_heads: Size = 4
    """Heads of the attention, which share `d_model`."""
    d_feedforward: Size | None = None
    """Width of the feed-forward layers; without it 4 · d_model."""
    positions: Literal["learned", "sinusoidal", "rotary"] = "rotary"
    """How a position is known; learned ones end at `context`."""
    norm: Literal["pre", "post"] = "pre"
    """Where the normalization stands: before each sublayer, or after it as published in 2017."""
    activation: Literal["relu", "gelu"] = "gelu"
    """The nonlinearity."""


class NoEncoder(Specification):
    """No layers: features go to the head as they are, each position by itself."""

    kind: Literal["none"]


EncoderSpecification = Annotated[
    WindowEncoder
    | ElmanEncoder
    | LSTMEncoder
    | ProjectedEncoder
    | GRUEncoder
    | ClockworkEncoder
    | PlainEncoder
    | QRNNEncoder
    | TransformerEncoder
    | NoEncoder,
    Field(discriminator="kind"),
]


class Tokens(Specification):
    """The table `[tokens]`: vectors of what a text is cut into."""

    d_embedding: Size = 64
    """Features of a token's vector."""
    tied: bool = False
    """Whether the softmax uses the embedding's table (through a projection where the sizes differ)."""
    dropout_words: Share = 0.0
    """Share of the vocabulary whose embeddings are zero in a training step."""


class Directions(Specification):
    """The table `[directions]`: how an encoder reads a whole text."""

    bidirectional: bool = True
    """Whether a position sees what follows it too: a second layer from right to left, or attention both ways."""
    merge: Literal["concatenate", "sum", "product", "mean"] = "concatenate"
    """How the outputs of two directions become one; attention has no use for it."""


ONE_WAY = Directions(bidirectional=False)
"""From left to right, as a language model reads."""


def describe_encoder(encoder: Encoder | NoEncoder) -> str:
    """In words: `lstm 2×256`."""
    if isinstance(encoder, NoEncoder):
        return "no encoder"
    return f"{encoder.kind} {encoder.num_layers}×{encoder.d_model}"
