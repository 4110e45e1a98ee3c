"""Transformer blocks, post-norm as published and pre-norm, with and without attention to a memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.attention.cross import MultiHeadCrossAttention
from ensue.nn.attention.multi_head import AttentionOptions, KVState, MultiHeadAttention
from ensue.nn.draws import ElementDropout
from ensue.nn.layer import Parallel
from ensue.nn.taps import Tap
from ensue.types import Inputs, Mask, Memory, Outputs, Shared, State

Activation = Literal["relu", "gelu", "gelu-tanh", "silu"]
NormKind = Literal["layer", "rms"]
NORMS: dict[NormKind, Any] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
"""Normalizations; "rms" divides by the root mean square and has no bias (Zhang & Sennrich 2019)."""
EPSILON = 1e-5


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raise ValueError unless `value` is among the `choices` of a `Literal`."""
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, found {value!r}")


def nonlinearity(activation: Activation) -> nn.Module:
    """Return the module of an activation; "gelu-tanh" is GELU approximated by tanh (Hendrycks & Gimpel 2016)."""
    check_choice("activation", activation, Activation)
    if activation == "silu":
        return nn.SiLU()
    return nn.ReLU() if activation == "relu" else nn.GELU("tanh" if activation == "gelu-tanh" else "none")


@dataclass(frozen=True, kw_only=True)
class BlockOptions(AttentionOptions):
    """The options of a Transformer block, including those of its attention."""

    d_feedforward: int | None = None
    """Width of the feed-forward network; None: 4 · d_model."""
    dropout: float = 0.0
    """Dropout on the output of each sublayer and in the feed-forward network."""
    dropout_attention: float | None = None
    """Dropout on the attention weights; None: `dropout`."""
    activation: Activation = "relu"
    norm_kind: NormKind = "layer"
    norm_epsilon: float = EPSILON
    """The ε that is added to variances."""
    norm_first: bool = True
    """Whether the attention sublayer has a normalization: of its input in a `PreNormBlock`, else of x + SelfAttn(x)."""
    gated: bool = False
    """Whether the activations are multiplied by a second linear map of the input (Shazeer 2020)."""
    parallel: bool = False
    """Whether attention and feed-forward network both read x, in `PreNormBlock` (Wang & Komatsuzaki 2021)."""


class FeedForward(nn.Sequential):
    """A network `W_2 g(W_1 x + b_1) + b_2` for every position (Vaswani et al. 2017, eq. 2), with the activation g.

    Tap: `neurons`, the values of g.
    """

    def __init__(self, d_model: int, d_hidden: int, *, activation: Activation, dropout: float) -> None:
        g = nonlinearity(activation)
        super().__init__(nn.Linear(d_model, d_hidden), g, ElementDropout(dropout), nn.Linear(d_hidden, d_model))
        self.neurons = Tap()

    def forward(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        """Return the output at every position."""
        below, g, dropout, above, neurons = self
        return above(dropout(neurons(g(below(x)))))


class GatedFeedForward(FeedForward):
    """A network `W_2 (g(W_1 x + b_1) ⊙ (V x + c)) + b_2` for every position (Shazeer 2020); SwiGLU for g = SiLU."""

    def __init__(self, d_model: int, d_hidden: int, *, activation: Activation, dropout: float) -> None:
        super().__init__(d_model, d_hidden, activation=activation, dropout=dropout)
        self.factor = nn.Linear(d_model, d_hidden)

    def forward(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        below, g, dropout, above, neurons, factor = self
        return above(dropout(neurons(g(below(x))) * factor(x)))


class PostNormBlock(Parallel):
    """A block `z = LayerNorm(x + SelfAttn(x))`, `y = LayerNorm(z + FFN(z))` (Vaswani et al. 2017).

    Raises ValueError for the option `parallel`, which only `PreNormBlock` supports.
    """

    may_be_parallel = False

    def __init__(self, d_model: int, options: BlockOptions | None = None, **keywords: Any) -> None:
        """Build the block from `options`, or from the fields of `BlockOptions` as keywords."""
        super().__init__()
        self.options = options = options or BlockOptions(**keywords)
        if options.parallel and not self.may_be_parallel:
            raise ValueError(f"{type(self).__name__} cannot be parallel; parallel needs norm = pre and no memory")
        self.d_in = self.d_out = d_model
        self.is_causal, self.parallel = options.is_causal, options.parallel
        dropout = options.dropout if options.dropout_attention is None else options.dropout_attention
        self.attention = MultiHeadAttention(d_model, options.to(AttentionOptions, dropout=dropout))
        network, norm = GatedFeedForward if options.gated else FeedForward, NORMS[options.norm_kind]
        self.d_feedforward = 4 * d_model if options.d_feedforward is None else options.d_feedforward
        self.feedforward = network(d_model, self.d_feedforward, activation=options.activation, dropout=options.dropout)
        self.norm_attention: Any = norm(d_model, options.norm_epsilon) if options.norm_first else nn.Identity()
        self.norm_feedforward = norm(d_model, options.norm_epsilon)
        self.dropout = ElementDropout(options.dropout)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> KVState:
        return self.attention.init_state(batch_size, memory)

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, State]:
        attended, state = self.attention(self.normalize_input(x), state, mask=mask)
        return self.feed_forward(x, attended), state

    def forward_packed(self, x: Float[Tensor, "1 N d_in"], lengths: Sequence[int]) -> Float[Tensor, "1 N d_out"]:
        """Return the outputs of concatenated texts of these lengths; see `MultiHeadAttention.forward_packed`."""
        return self.feed_forward(x, self.attention.forward_packed(self.normalize_input(x), lengths))

    def normalize_input(self, x: Float[Tensor, "*shape d_in"]) -> Float[Tensor, "*shape d_in"]:
        """Return the input of the attention from the input of the block."""
        return x

    def feed_forward(self, x: Float[Tensor, "*shape d_in"], attended: Tensor) -> Float[Tensor, "*shape d_out"]:
        """Return the output of the block from its input and the output of the attention."""
        z = self.norm_attention(x + self.dropout(attended))
        return self.norm_feedforward(z + self.dropout(self.feedforward(z)))

    def extra_repr(self) -> str:
        return f"d_model={self.d_in}, {self.options}"


class PreNormBlock(PostNormBlock):
    """A block `z = x + SelfAttn(LayerNorm(x))`, `y = z + FFN(LayerNorm(z))` (Xiong et al. 2020); with `parallel`,
    `y = z + FFN(LayerNorm(x))` (Black et al. 2022).
    """

    may_be_parallel = True

    def normalize_input(self, x: Float[Tensor, "*shape d_in"]) -> Float[Tensor, "*shape d_in"]:
        return self.norm_attention(x)

    def feed_forward(self, x: Float[Tensor, "*shape d_in"], attended: Tensor) -> Float[Tensor, "*shape d_out"]:
        z = x + self.dropout(attended)
        return z + self.dropout(self.feedforward(self.norm_feedforward(x if self.parallel else z)))


class DecoderBlockState(NamedTuple):
    """The keys and values of the positions read so far, and the memory."""

    past: KVState
    memory: Shared


class PostNormDecoderBlock(PostNormBlock):
    """A block of self-attention, attention to the memory m, and feed-forward layer (Vaswani et al. 2017, section 3.1):

    u = LayerNorm(x + SelfAttn(x))    z = LayerNorm(u + CrossAttn(u, m))    y = LayerNorm(z + FFN(z))
    """

    def __init__(
        self, d_model: int, options: BlockOptions | None = None, *, d_memory: int | None = None, **keywords: Any
    ) -> None:
        """Build the block like `PostNormBlock`, with a memory of `d_memory` features (None: `d_model`)."""
        super().__init__(d_model, options, **keywords)
        self.d_memory = d_model if d_memory is None else d_memory
        attention = self.attention
        self.cross_attention = MultiHeadCrossAttention(
            d_model, self.d_memory, num_heads=attention.num_heads, dropout=attention.dropout
        )
        self.norm_cross_attention = NORMS[self.options.norm_kind](d_model, self.options.norm_epsilon)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> DecoderBlockState:  # type: ignore[override]
        return DecoderBlockState(
            self.attention.init_state(batch_size), self.cross_attention.init_state(batch_size, memory)
        )

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, State]:
        past, memory = (None, None) if state is None else state
        attended, past = self.attention(x, past, mask=mask)
        u = self.norm_attention(x + self.dropout(attended))
        context, memory = self.cross_attention(u, memory, mask=mask)
        z = self.norm_cross_attention(u + self.dropout(context))
        return self.norm_feedforward(z + self.dropout(self.feedforward(z))), DecoderBlockState(past, memory)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, d_memory={self.d_memory}"


class PreNormDecoderBlock(PostNormDecoderBlock):
    """A block `u = x + SelfAttn(LayerNorm(x))`, `z = u + CrossAttn(LayerNorm(u), m)`, `y = z + FFN(LayerNorm(z))`."""

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, State]:
        past, memory = (None, None) if state is None else state
        attended, past = self.attention(self.norm_attention(x), past, mask=mask)
        u = x + self.dropout(attended)
        context, memory = self.cross_attention(self.norm_cross_attention(u), memory, mask=mask)
        z = u + self.dropout(context)
        return z + self.dropout(self.feedforward(self.norm_feedforward(z))), DecoderBlockState(past, memory)
