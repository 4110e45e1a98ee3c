"""The tables of a recipe that describe the layers of a model: `[encoder]`, `[tokens]`, `[directions]`, `[head]`.

`build_text.py` and extensions build modules from these tables, which are the same in every task. Each kind of encoder
has a class with its keys; kinds with the same keys share a class. Unknown keys, and keys of other kinds, are errors.
"""

from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from itertools import pairwise
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, TypeAlias, Union, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:  # imports torch, which recipes do not need
    from ensue.nn import SequenceLayer

MAX_SIZE = 1_000_000
Size = Annotated[int, Field(ge=1, le=MAX_SIZE)]
SizeOrZero = Annotated[int, Field(ge=0, le=MAX_SIZE)]
UpTo100 = Annotated[int, Field(ge=0, le=100)]
Layers = Annotated[int, Field(ge=1, le=1000)]
Share = Annotated[float, Field(ge=0, lt=1)]
Clip = Annotated[float, Field(gt=0, le=1e6)]


def _check_utf8(path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"is a path that is not UTF-8, which a recipe cannot hold: {path!r}") from None
    return path


Path = Annotated[str, AfterValidator(_check_utf8)]
"""A path in UTF-8, as TOML files need."""


class Table(BaseModel):
    """The base of the tables of a recipe: immutable, with strict types and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True, serialize_by_alias=True)

    def problems(self) -> Iterator[str]:
        """Yield a message for each problem of the values, such as two keys that exclude each other."""
        yield from ()

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        for problem in self.problems():
            raise ValueError(problem)
        return self


class Encoder(Table):
    """The keys of all encoders: sizes and dropout."""

    kind: str
    origin: Path = Field(default="", alias="from")
    """The directory of a run whose weights initialize these layers."""
    d_model: Size = 256
    """Features of a layer's output, in each direction."""
    num_layers: Layers = 1
    """The number of layers."""
    dropout: Share = 0.0
    """Dropout on the output of every layer; in a window network, depth-gated or grid stack only on the last output. In
    a Transformer on the input of the first block, on the output of each sublayer, and in feed-forward layers.
    """


class RecurrentEncoder(Encoder):
    """The keys of all recurrent encoders. Subclasses name the classes of layers and add the keys of these layers."""

    cells: ClassVar[Mapping[str, str]] = {}
    """The class of a layer for each kind, "module:name", with arguments `d_in`, `d_model` and keys of this table."""
    is_stack: ClassVar[bool] = False
    """Whether a single module contains all layers."""
    dropout_kind: Literal["plain", "variational"] = "plain"
    """plain: a new mask at every position; variational: one mask for all positions of a segment or text."""
    dropout_input: Share = 0.0
    """Dropout on the input of the first layer."""
    residual: bool = False
    """Whether each layer from the second on has a residual connection."""

    def layer(self, d_in: int) -> "SequenceLayer":
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
    """Probability that a unit of the hidden state keeps its old value; in evaluation, the weight of the old value."""


class CellEncoder(ZoneoutEncoder):
    """The keys of encoders with a cell."""

    zoneout_cell: Share = 0.0
    """Probability that a cell keeps its old value at a position; in evaluation, the weight of the old value."""


class WindowEncoder(Encoder):
    """The keys of `window`."""

    kind: Literal["window"]
    size: Size = 5
    """The number of positions in the window, in each direction."""


class ElmanEncoder(ZoneoutEncoder):
    """The keys of `elman`."""

    kind: Literal["elman"]
    cells = {"elman": "ensue.nn.recurrent.gru:Elman"}
    activation: Literal["tanh", "relu"] = "tanh"
    """The nonlinearity."""


class LSTMEncoder(CellEncoder):
    """The keys of `lstm` and of variants that add no key."""

    kind: Literal["lstm", "peephole", "coupled", "layer-norm"]
    cells = {
        "lstm": "ensue.nn.recurrent.lstm:LSTM", "peephole": "ensue.nn.recurrent.lstm:PeepholeLSTM",
        "coupled": "ensue.nn.recurrent.lstm:CoupledLSTM", "layer-norm": "ensue.nn.recurrent.lstm:LayerNormLSTM",
    }  # fmt: skip


class ProjectedEncoder(CellEncoder):
    """The keys of `projected`."""

    kind: Literal["projected"]
    cells = {"projected": "ensue.nn.recurrent.lstm:ProjectedLSTM"}
    d_cell: Size | None = None
    """Cells of a layer, whose output is projected to `d_model` features; default: 2 · d_model."""
    clip_cell: Clip | None = None
    """The largest absolute value of a cell; default: no limit."""
    clip_output: Clip | None = None
    """The largest absolute value of an output; default: no limit."""


class GRUEncoder(ZoneoutEncoder):
    """The keys of `gru`."""

    kind: Literal["gru"]
    cells = {"gru": "ensue.nn.recurrent.gru:GRU"}
    reset: Literal["before", "after"] = "after"
    """Whether the reset gate is before the recurrent product (the paper) or after it (cuDNN and torch)."""


class ClockworkEncoder(HiddenEncoder):
    """The keys of `clockwork`."""

    kind: Literal["clockwork"]
    cells = {"clockwork": "ensue.nn.recurrent.clockwork:Clockwork"}
    periods: list[Size] = Field(default=[1, 2, 4, 8, 16, 32, 64, 128], min_length=1)
    """Positions between two updates of a module; all modules have equal size. Each period divides the next."""

    def problems(self) -> Iterator[str]:
        if self.d_model % len(self.periods):
            yield f"has d_model {self.d_model}, which is not divisible by the number of periods, {len(self.periods)}"
        if any(slow <= fast or slow % fast for fast, slow in pairwise(self.periods)):
            yield f"has periods that do not each divide the next: {self.periods}"


class StackEncoder(RecurrentEncoder):
    """The keys of recurrent encoders with connections between layers: one module has all layers."""

    kind: Literal["depth-gated", "grid"]
    cells = {
        "depth-gated": "ensue.nn.recurrent.lstm_stacks:DepthGatedLSTM",
        "grid": "ensue.nn.recurrent.lstm_stacks:GridLSTM",
    }
    is_stack = True

    def problems(self) -> Iterator[str]:
        if self.residual:
            yield f"has residual, but {self.kind} has other connections between layers"


class PlainEncoder(RecurrentEncoder):
    """The keys of recurrent encoders that add no key."""

    kind: Literal["mingru", "minlstm", "lru", "mogrifier", "lem"]
    cells = {
        "mingru": "ensue.nn.recurrent.linear_recurrence:MinGRU", "lru": "ensue.nn.recurrent.linear_recurrence:LRU",
        "minlstm": "ensue.nn.recurrent.linear_recurrence:MinLSTM", "lem": "ensue.nn.recurrent.gru:LEM",
        "mogrifier": "ensue.nn.recurrent.lstm:MogrifierLSTM",
    }  # fmt: skip


class HeadsEncoder(RecurrentEncoder):
    """The keys of recurrent encoders with heads."""

    kind: Literal["slstm", "mlstm", "hgrn2", "gated-deltanet", "rwkv7"]
    cells = {
        "slstm": "ensue.nn.recurrent.xlstm:SLSTM", "mlstm": "ensue.nn.recurrent.xlstm:MLSTM",
        "hgrn2": "ensue.nn.recurrent.delta_rule:HGRN2", "rwkv7": "ensue.nn.recurrent.delta_rule:RWKV7",
        "gated-deltanet": "ensue.nn.recurrent.delta_rule:GatedDeltaNet",
    }  # fmt: skip
    num_heads: Size = 4
    """Heads of a layer; their number divides `d_model`."""

    def problems(self) -> Iterator[str]:
        if self.d_model % self.num_heads:
            yield f"has d_model {self.d_model}, which is not divisible by num_heads, {self.num_heads}"


class QRNNEncoder(RecurrentEncoder):
    """The keys of `qrnn`."""

    kind: Literal["qrnn"]
    cells = {"qrnn": "ensue.nn.recurrent.linear_recurrence:QRNN"}
    size: Size = 2
    """The width of the causal convolution, in positions."""


class TransformerEncoder(Encoder):
    """The keys of `transformer`."""

    kind: Literal["transformer"]
    context: Size = 128
    """Tokens of a language model's training block and context; else the number of learned positions or distances."""
    num_heads: Size = 4
    """Attention heads; their number divides `d_model`."""
    d_feedforward: Size | None = None
    """Width of the feed-forward layers; default: 4 · d_model."""
    positions: Literal["learned", "sinusoidal", "rotary", "disentangled"] = "rotary"
    """The position encoding; learned positions end at `context`. disentangled: vectors of distances, multiplied by
    queries and keys, as in DeBERTa; for bidirectional models.
    """
    dropout_attention: Share | None = None
    """Dropout on attention weights; default: `dropout`. 0 is much faster on a CPU."""
    norm: Literal["pre", "post"] = "pre"
    """Whether normalization is before each sublayer, or after it as in Vaswani et al. 2017."""
    norm_input: bool = False
    """Whether the input of the first block is normalized, as in BERT."""
    norm_first: bool = True
    """Whether the attention of the first block has a normalization, for `norm = "pre"`; false in ModernBERT."""
    norm_epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-5
    """The ε that is added to variances; 1e-12 in BERT."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """The normalization; rms: by the root mean square, without a bias, as in Llama."""
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = "gelu"
    """The nonlinearity; gelu-tanh: the tanh approximation of GELU, as in GPT."""
    gated: bool = False
    """Whether feed-forward layers are gated linear units; with silu, SwiGLU."""
    parallel: bool = False
    """Whether attention and feed-forward layers have the same input, as in Pythia; for `norm = "pre"`."""
    rotary_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The fraction of a head's features that rotary positions rotate."""
    rotary_base: Annotated[float, Field(ge=1, le=1e9)] = 10_000.0
    """The base of the frequencies of rotary positions."""
    neighbors: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """The number of neighbors on each side to which a position attends, for bidirectional models; 0: all positions."""
    global_every: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Every n-th block, from the first on, attends to all positions despite `neighbors`, as in ModernBERT; 0: none."""
    neighbors_base: Annotated[float, Field(ge=1, le=1e9)] | None = None
    """The base of rotary positions in blocks that attend to neighbors only; default: `rotary_base`."""
    relative_buckets: Annotated[int, Field(ge=0, le=10_000)] = 0
    """The number of buckets of distances, each with a trained bias of attention scores, as in MPNet; for bidirectional
    models. With disentangled positions, the number of buckets on each side, each with a trained vector.
    """
    zero_writes: bool = False
    """Whether the last linear map of each sublayer starts at 0, so that a pre-norm block starts as the identity."""
    window: Annotated[int, Field(ge=0, le=10_000)] = 0
    """The size of a residual window network before the first block, in positions in each direction. 0: none."""
    d_input: Size | None = None
    """The size of the token and position vectors of a masked language model; default: `d_model`. Smaller in ALBERT."""


class OriginEncoder(Table):
    """The keys of `origin`: the layers of a causal or masked language model, which are fine-tuned."""

    kind: Literal["origin"]
    origin: Path = Field(default="", alias="from")
    """The directory of the run that has the layers."""
    pooling: Literal["auto", "first", "last", "mean"] = "auto"
    """The pooling of the vectors of a word's subwords; auto: first, or last in a causal model."""
    dropout: Share | None = None
    """Dropout in the layers; default: as in the run `from`."""
    dropout_attention: Share = 0.0
    """Dropout on attention weights; above 0 training is much slower on a CPU."""
    language_loss: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """The weight of an auxiliary loss of the next token, for a causal model (Radford et al. 2018). 0: none."""


class GuestEncoder(RecurrentEncoder):
    """The base class of encoders in other packages. A subclass has a `kind`, and `cells` or a method `layer`."""


class NoEncoder(Table):
    """No layers: the head reads the features of each position."""

    kind: Literal["none"]
    origin: Path = Field(default="", alias="from")
    """The directory of a run whose weights initialize this model."""


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
    """Whether the softmax shares the weights of the embedding (with a projection if the sizes differ)."""
    scaled: bool = True
    """Whether tied vectors are multiplied by √d_embedding in the input; false in GPT."""
    dropout_words: Share = 0.0
    """Probability that the embedding of a token is set to 0 in a training step, at all positions."""


class Directions(Table):
    """The table `[directions]`: the directions in which an encoder reads a text."""

    bidirectional: bool = True
    """Whether a position depends on later positions, too: by a second layer from right to left, or by attention."""
    merge: Literal["concatenate", "sum", "product", "mean"] = "concatenate"
    """How the outputs of the two directions are merged; not used for attention."""


class PairTokens(Table):
    """The table `[tokens]` of an encoder–decoder: the vectors of the tokens of both sides."""

    d_embedding: Size = 256
    """Features of a token's vector."""
    tied: Literal["none", "target", "all"] = "target"
    """Shared weights. target: of softmax and target embedding; all: of both embeddings, with one vocabulary."""
    dropout_words: Share = 0.0
    """Probability that the embedding of a token of either side is set to 0 in a training step, at all positions."""


class Attention(Table):
    """The table `[attention]`: the attention of a decoder to the source."""

    kind: Literal["scaled-dot", "dot", "bilinear", "additive", "none"] = "scaled-dot"
    """The score function: scaled-dot (Vaswani et al. 2017), dot and bilinear (Luong et al. 2015), additive (Bahdanau et
    al. 2015). none: the decoder reads the encoder's last state, at its start and at every position. A Transformer
    decoder has scaled-dot.
    """
    num_heads: Size = 1
    """Heads of a recurrent decoder's scaled-dot attention."""
    feeding: bool = False
    """Input feeding: whether a recurrent decoder reads the last output of the attention with each token."""
    dropout: Share = 0.0
    """Dropout on the output of the attention of a recurrent decoder."""


class TextHead(Table):
    """The table `[head]` of an encoder–decoder."""

    copying: bool = False
    """Whether words of the source can be copied (pointer-generator, See et al. 2017)."""
    coverage: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """The weight of the coverage loss, for copying models: it penalizes repeated attention to a position. 0: none."""
    label_smoothing: Share = 0.0
    """Fraction of the target probability that is spread over the vocabulary in training."""


class WordHead(Table):
    """The table `[head]` of a language model."""

    sampled: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """The number of sampled words in a training step, shared by all positions; 0: no sampling, as in evaluation."""
    sampled_power: Annotated[float, Field(ge=0, le=2)] = 1.0
    """The exponent α of the distribution of sampled words, count^α; 0: uniform."""


ONE_WAY = Directions(bidirectional=False)
"""The directions of a causal model."""


def describe_encoder(encoder: Encoder | OriginEncoder | NoEncoder) -> str:
    """Return a description such as `lstm 2×256`."""
    if isinstance(encoder, OriginEncoder):
        return f"the layers of {encoder.origin}" if encoder.origin else "the layers of another run"
    if isinstance(encoder, NoEncoder):
        return "no encoder"
    return f"{encoder.kind} {encoder.num_layers}×{encoder.d_model}"
