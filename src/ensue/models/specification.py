"""The tables of a recipe that describe its layers: `[encoder]`, `[tokens]`, `[directions]`, `[head]`.

`build_text.py` and extensions make modules of them. Each encoder has a class with its keys; encoders with the same keys
share one. The table is the same in every task. Unknown keys are errors, also those of another encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from itertools import pairwise
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, TypeAlias, Union, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:  # it needs torch, which recipes do not
    from ensue.nn import SequenceLayer

LARGEST = 1_000_000
Size = Annotated[int, Field(ge=1, le=LARGEST)]
SizeOrZero = Annotated[int, Field(ge=0, le=LARGEST)]
Few = Annotated[int, Field(ge=0, le=100)]
Layers = Annotated[int, Field(ge=1, le=1000)]
Share = Annotated[float, Field(ge=0, lt=1)]
Clip = Annotated[float, Field(gt=0, le=1e6)]


def _is_text(path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"is a path that is not UTF-8, which a recipe cannot hold: {path!r}") from None
    return path


Path = Annotated[str, AfterValidator(_is_text)]
"""A path, which TOML can hold."""


class Table(BaseModel):
    """Values that are strict in their types and keys and never change: the tables of a recipe, and other settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True, serialize_by_alias=True)


class Encoder(Table):
    """The keys of all encoders: sizes and dropout."""

    kind: str
    origin: Path = Field(default="", alias="from")
    """The directory of a run from whose weights these layers begin."""
    d_model: Size = 256
    """Features of a layer's output (for two directions, of each)."""
    num_layers: Layers = 1
    """Layers, one after another."""
    dropout: Share = 0.0
    """Dropout on the output of every layer; for a window network, a depth-gated or a grid stack only of the last."""


class RecurrentEncoder(Encoder):
    """The keys of recurrent encoders. A subclass has the classes of its layers, and their keys."""

    cells: ClassVar[Mapping[str, str]] = {}
    """The class of a layer, "module:name", for each kind. Its arguments are `d_in`, `d_model`, and all keys of this
    table that it has a keyword for.
    """
    is_stack: ClassVar[bool] = False
    """Whether one cell makes all layers."""
    dropout_kind: Literal["plain", "variational"] = "plain"
    """plain: a new mask at every position; variational: one mask for a whole segment or text."""
    dropout_input: Share = 0.0
    """Dropout on the input of the first layer."""
    residual: bool = False
    """Whether each layer from the second on adds its input to its output."""

    def layer(self, d_in: int) -> SequenceLayer:
        """Return a new causal layer from `d_in` features to `d_model`."""
        cell: Callable[..., SequenceLayer] = resolve_name(self.cells[self.kind])
        keys = signature(cell).parameters.keys() & type(self).model_fields.keys()
        return cell(d_in, self.d_model, **{key: getattr(self, key) for key in keys})


class HiddenEncoder(RecurrentEncoder):
    """The keys of encoders whose recurrent weights are one matrix, `weight_hidden`."""

    dropout_recurrent: Share = 0.0
    """Dropout on the recurrent weights (weight-drop)."""


class ZoneoutEncoder(HiddenEncoder):
    """The keys of encoders with zoneout."""

    zoneout_hidden: Share = 0.0
    """Chance that a unit of the hidden state keeps its old value at a position; in evaluation, the
    old value's weight.
    """


class CellEncoder(ZoneoutEncoder):
    """The keys of encoders with a cell."""

    zoneout_cell: Share = 0.0
    """Chance that a cell keeps its old value at a position; in evaluation, the old value's weight."""


class WindowEncoder(Encoder):
    """The keys of `window`."""

    kind: Literal["window"]
    size: Size = 5
    """The number of positions in the window, N (for two directions, in each)."""


class ElmanEncoder(ZoneoutEncoder):
    """The keys of `elman`."""

    kind: Literal["elman"]
    cells = {"elman": "ensue.nn.recurrent.elman:Elman"}
    activation: Literal["tanh", "relu"] = "tanh"
    """The nonlinearity."""


class LSTMEncoder(CellEncoder):
    """The keys of `lstm` and its variants without keys of their own."""

    kind: Literal["lstm", "peephole", "coupled", "layer-norm"]
    cells = {
        "lstm": "ensue.nn.recurrent.lstm:LSTM",
        "peephole": "ensue.nn.recurrent.lstm_variants:PeepholeLSTM",
        "coupled": "ensue.nn.recurrent.lstm_variants:CoupledLSTM",
        "layer-norm": "ensue.nn.recurrent.lstm_variants:LayerNormLSTM",
    }


class ProjectedEncoder(CellEncoder):
    """The keys of `projected`."""

    kind: Literal["projected"]
    cells = {"projected": "ensue.nn.recurrent.lstm_variants:ProjectedLSTM"}
    d_cell: Size | None = None
    """Cells of a layer, which are projected to `d_model` features; default: 2 · d_model."""
    clip_cell: Clip | None = None
    """The largest value of a cell, above or below zero; default: no limit."""
    clip_output: Clip | None = None
    """The largest value of an output, above or below zero; default: no limit."""


class GRUEncoder(ZoneoutEncoder):
    """The keys of `gru`."""

    kind: Literal["gru"]
    cells = {"gru": "ensue.nn.recurrent.gru:GRU"}
    reset: Literal["before", "after"] = "after"
    """Whether the reset gate is before the recurrent product (the paper) or after it (the vendors' kernels)."""


class ClockworkEncoder(HiddenEncoder):
    """The keys of `clockwork`."""

    kind: Literal["clockwork"]
    cells = {"clockwork": "ensue.nn.recurrent.clockwork:Clockwork"}
    periods: list[Size] = Field(default=[1, 2, 4, 8, 16, 32, 64, 128], min_length=1)
    """Positions between two updates of a module; each divides the next. Modules share `d_model` evenly."""

    @model_validator(mode="after")
    def _modules(self) -> Self:
        if self.d_model % len(self.periods):
            raise ValueError(f"has d_model {self.d_model}, which {len(self.periods)} periods cannot share evenly")
        if any(slow <= fast or slow % fast for fast, slow in pairwise(self.periods)):
            raise ValueError(f"has periods of which not each is a divisor of the next: {self.periods}")
        return self


class StackEncoder(RecurrentEncoder):
    """Recurrent encoders that are stacks of `num_layers`."""

    kind: Literal["depth-gated", "grid"]
    cells = {
        "depth-gated": "ensue.nn.recurrent.lstm_stacks:DepthGatedLSTM",
        "grid": "ensue.nn.recurrent.lstm_stacks:GridLSTM",
    }
    is_stack = True

    @model_validator(mode="after")
    def _bypasses(self) -> Self:
        if self.residual:
            raise ValueError(f"has residual, but {self.kind} has connections of its own between layers")
        return self


class PlainEncoder(RecurrentEncoder):
    """Recurrent encoders without keys of their own."""

    kind: Literal["mingru", "minlstm", "lru", "mogrifier", "lem"]
    cells = {
        "mingru": "ensue.nn.recurrent.minimal:MinGRU",
        "minlstm": "ensue.nn.recurrent.minimal:MinLSTM",
        "lru": "ensue.nn.recurrent.lru:LRU",
        "mogrifier": "ensue.nn.recurrent.lstm_variants:MogrifierLSTM",
        "lem": "ensue.nn.recurrent.lem:LEM",
    }


class HeadsEncoder(RecurrentEncoder):
    """The keys of recurrent encoders with heads."""

    kind: Literal["slstm", "mlstm", "gated-deltanet", "rwkv7"]
    cells = {
        "slstm": "ensue.nn.recurrent.xlstm:SLSTM",
        "mlstm": "ensue.nn.recurrent.xlstm:MLSTM",
        "gated-deltanet": "ensue.nn.recurrent.gated_deltanet:GatedDeltaNet",
        "rwkv7": "ensue.nn.recurrent.rwkv7:RWKV7",
    }
    num_heads: Size = 4
    """Heads of a layer, which share `d_model` evenly."""

    @model_validator(mode="after")
    def _shared(self) -> Self:
        if self.d_model % self.num_heads:
            raise ValueError(f"has d_model {self.d_model}, which {self.num_heads} heads cannot share evenly")
        return self


class QRNNEncoder(RecurrentEncoder):
    """The keys of `qrnn`."""

    kind: Literal["qrnn"]
    cells = {"qrnn": "ensue.nn.recurrent.qrnn:QRNN"}
    size: Size = 2
    """The number of positions that the convolution reads: the last N."""


class TransformerEncoder(Encoder):
    """The keys of `transformer`."""

    kind: Literal["transformer"]
    context: Size = 128
    """For a language model, the longest context in tokens, also the length of a training block. For whole texts, the
    number of learned positions.
    """
    num_heads: Size = 4
    """Heads of the attention, which share `d_model`."""
    d_feedforward: Size | None = None
    """Width of the feed-forward layers; default: 4 · d_model."""
    positions: Literal["learned", "sinusoidal", "rotary", "disentangled"] = "rotary"
    """How positions are encoded; learned ones end at `context`. disentangled: vectors of distances, which meet queries
    and keys, as in DeBERTa; for a model that looks in both directions.
    """
    dropout_attention: Share | None = None
    """Dropout on the weights of the attention; default: `dropout`. 0 is much faster on a CPU."""
    norm: Literal["pre", "post"] = "pre"
    """Whether normalization is before each sublayer, or after it as published in 2017."""
    norm_input: bool = False
    """Whether the input is normalized before the first block too, as in BERT."""
    norm_first: bool = True
    """Whether the attention of the first block reads a normalized input, for `norm = "pre"`; not in ModernBERT."""
    norm_epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-5
    """A number added to variances before they divide; 1e-12 in BERT."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """The normalization; rms: by the root of the mean square, without a bias, as in Llama."""
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = "gelu"
    """The nonlinearity; gelu-tanh: the GELU by a tanh, as in GPT."""
    gated: bool = False
    """Whether a second map of the input multiplies what the nonlinearity returns; with silu it is SwiGLU."""
    parallel: bool = False
    """Whether the feed-forward layers read what the attention reads, as in Pythia; for `norm = "pre"`."""
    rotary_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of a head's features that rotary positions turn."""
    rotary_base: Annotated[float, Field(ge=1, le=1e9)] = 10_000.0
    """The base of the frequencies of rotary positions."""
    neighbors: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Neighbors to each side that a position attends to, for a model that looks in both directions; 0: all."""
    global_every: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Of so many blocks the first attends to all positions in spite of `neighbors`, as in ModernBERT; 0: none does."""
    neighbors_base: Annotated[float, Field(ge=1, le=1e9)] | None = None
    """The base of rotary positions in blocks that attend to neighbors alone; default: `rotary_base`."""
    relative_buckets: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Buckets of distances, each with a trained number that is added to scores, as in MPNet; for a model that looks in
    both directions. With disentangled positions, the buckets of a side, each with a vector.
    """
    zero_writes: bool = False
    """Whether the maps that write into the sum of a block's input and outputs start at zero, so that a block starts as
    the identity.
    """
    window: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Positions that a window network in front of the first block reads, in each direction. Its output is added to its
    input. 0: none.
    """
    d_input: Size | None = None
    """For a masked language model, the width of its vectors of tokens and positions, if not `d_model` (ALBERT)."""


class OriginEncoder(Table):
    """The keys of `origin`: the layers of a language model, causal or masked, which are trained with the task."""

    kind: Literal["origin"]
    origin: Path = Field(default="", alias="from")
    """The directory of the run whose layers they are."""
    pooling: Literal["auto", "first", "last", "mean"] = "auto"
    """How the vectors of a word's subwords become one; auto: first, or last in a left-to-right model."""
    dropout: Share | None = None
    """Dropout in its layers; default: as in that run."""
    dropout_attention: Share = 0.0
    """Dropout on the weights of the attention in its layers; above 0 training is much slower on a CPU."""
    language_loss: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """The weight of the loss of the next token, with a model that reads from left to right (Radford et al. 2018). 0:
    none.
    """


class GuestEncoder(RecurrentEncoder):
    """The keys of an encoder of another package. A subclass has a `kind`, and `cells` or a method `layer`."""


class NoEncoder(Table):
    """No layers: the head reads the features of each position."""

    kind: Literal["none"]


if TYPE_CHECKING:
    CellsSpecification: TypeAlias = RecurrentEncoder
    EncoderSpecification: TypeAlias = WindowEncoder | RecurrentEncoder | TransformerEncoder | NoEncoder
else:
    _cells = [kind for kind in vars().values() if isinstance(kind, type) and issubclass(kind, RecurrentEncoder)]
    _cells = Union[tuple(kind for kind in _cells if kind.cells)]  # noqa: UP007 (a tuple)
    CellsSpecification = Annotated[_cells, Field(discriminator="kind")]
    """Recurrent layers: the classes above that have `cells`."""
    EncoderSpecification = Annotated[
        WindowEncoder | _cells | TransformerEncoder | NoEncoder, Field(discriminator="kind")
    ]

ENCODER_KEYS = tuple(
    frozenset(field.alias or name for name, field in schema.model_fields.items())
    for schema in get_args(get_args(EncoderSpecification)[0])
)
"""The keys of each encoder."""
ENCODER_KINDS = frozenset(
    kind
    for schema in (*get_args(get_args(EncoderSpecification)[0]), OriginEncoder)
    for kind in get_args(schema.model_fields["kind"].annotation)
)
"""The names of all encoders of ensue."""
WordsEncoderSpecification = Annotated[EncoderSpecification | OriginEncoder, Field(discriminator="kind")]
"""The encoders of models that read words."""


class Tokens(Table):
    """The table `[tokens]`: the vectors of tokens."""

    d_embedding: Size = 64
    """Features of a token's vector."""
    tied: bool = False
    """Whether the softmax shares the embedding's table (with a projection if the sizes differ)."""
    scaled: bool = True
    """Whether the vectors of a shared table are read times √d_embedding; GPT reads them as they are."""
    dropout_words: Share = 0.0
    """Share of the vocabulary whose embeddings are zero in a training step."""


class Directions(Table):
    """The table `[directions]`: how an encoder reads a whole text."""

    bidirectional: bool = True
    """Whether a position also depends on later ones: by a second layer from right to left, or by attention to both
    sides.
    """
    merge: Literal["concatenate", "sum", "product", "mean"] = "concatenate"
    """How the outputs of two directions become one (not for attention)."""


class PairTokens(Table):
    """The table `[tokens]` of an encoder–decoder: the vectors of the tokens of both sides."""

    d_embedding: Size = 256
    """Features of a token's vector."""
    tied: Literal["none", "target", "all"] = "target"
    """The tables that are shared. target: the softmax has the table of the target's tokens; all: the source's tokens
    have it, too, and both sides have one vocabulary.
    """
    dropout_words: Share = 0.0
    """Share of each vocabulary whose embeddings are zero in a training step."""


class Attention(Table):
    """The table `[attention]`: how a decoder reads the source."""

    kind: Literal["scaled-dot", "dot", "bilinear", "additive", "none"] = "scaled-dot"
    """The score of a position of the source: scaled-dot (Vaswani et al. 2017), dot and bilinear (Luong et al. 2015),
    additive (Bahdanau et al. 2015). none: the decoder knows the encoder's last state alone, at its start and at every
    position. A Transformer's decoder has scaled-dot.
    """
    num_heads: Size = 1
    """Heads of a recurrent decoder's scaled-dot attention."""
    feeding: bool = False
    """Whether a recurrent decoder reads, with each token, the last output of the attention (input feeding)."""
    dropout: Share = 0.0
    """Dropout on the output of the attention of a recurrent decoder."""


class TextHead(Table):
    """The table `[head]` of an encoder–decoder."""

    copying: bool = False
    """Whether words of the source can be copied (pointer-generator, See et al. 2017)."""
    coverage: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """The weight of the loss for attending twice to the same place, with copying; 0: no coverage."""
    label_smoothing: Share = 0.0
    """Share of the probability that is spread over the vocabulary in training."""


class WordHead(Table):
    """The table `[head]` of a language model."""

    sampled: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """Words that stand for the whole vocabulary in a training step, the same for all positions; 0: all words. Scores
    are always by all words.
    """
    sampled_power: Annotated[float, Field(ge=0, le=2)] = 1.0
    """The words of a step are drawn in proportion to their counts to this power; 0: evenly."""


ONE_WAY = Directions(bidirectional=False)
"""From left to right, as a language model reads."""


def describe_encoder(encoder: Encoder | OriginEncoder | NoEncoder) -> str:
    """A description such as `lstm 2×256`."""
    if isinstance(encoder, OriginEncoder):
        return f"the layers of {encoder.origin}" if encoder.origin else "the layers of another run"
    if isinstance(encoder, NoEncoder):
        return "no encoder"
    return f"{encoder.kind} {encoder.num_layers}×{encoder.d_model}"
