"""Transformer blocks, post-norm as published and pre-norm: those of an encoder, and those that read a memory too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.nn.attention.cross import MultiHeadCrossAttention
from ensue.nn.attention.multi_head import AttentionOptions, KVState, MultiHeadAttention
from ensue.nn.dropout import ElementDropout
from ensue.nn.layer import Parallel
from ensue.nn.taps import Tap
from ensue.types import Memory, Shared, State

Activation = Literal["relu", "gelu", "gelu-tanh", "silu"]
NormKind = Literal["layer", "rms"]
NORMS: dict[NormKind, Any] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
"""Normalizations; "rms" divides by the root of the mean square and has no bias (Zhang & Sennrich 2019)."""
EPSILON = 1e-5


def checked(what: str, value: str, choices: Any) -> None:
    """Raises `ValueError` unless `value` is one of the `choices`, a `Literal`."""
    if value not in get_args(choices):
        raise ValueError(f"{what} is one of {', '.join(get_args(choices))}, not {value!r}")


def nonlinearity(activation: Activation) -> nn.Module:
    """The module of its name; "gelu-tanh" is the GELU by a tanh, as in GPT (Hendrycks & Gimpel 2016)."""
    checked("activation", activation, Activation)
    if activation == "silu":
        return nn.SiLU()
    return nn.ReLU() if activation == "relu" else nn.GELU("tanh" if activation == "gelu-tanh" else "none")


@dataclass(frozen=True, kw_only=True)
class BlockOptions(AttentionOptions):
    """The options of a Transformer block: those of its attention, and of all else."""

    d_feedforward: int | None = None
    """Width of the feed-forward network; None: 4 · d_model."""
    dropout: float = 0.0
    """Dropout on the output of each sublayer and in the feed-forward network."""
    dropout_attention: float | None = None
    """Dropout on the attention weights; None: `dropout`."""
    activation: Activation = "relu"
    norm_kind: NormKind = "layer"
    norm_epsilon: float = EPSILON
    """A number that is added to variances."""
    norm_first: bool = True
    """Whether the attention reads a normalized input, in `PreNormBlock`."""
    gated: bool = False
    """Whether what the activation returns is multiplied by a second map of the input (Shazeer 2020)."""
    parallel: bool = False
    """Whether the feed-forward network reads x, beside the attention; for pre-norm (Wang & Komatsuzaki 2021)."""

    def of_attention(self) -> AttentionOptions:
        """The options with the dropout of the attention weights in place of that of the block."""
        dropout = self.dropout if self.dropout_attention is None else self.dropout_attention
        return self.to(AttentionOptions, dropout=dropout)


class FeedForward(nn.Sequential):
    """`W_2 g(W_1 x + b_1) + b_2` at every position (Vaswani et al. 2017, eq. 2), with g = ReLU or GELU.

    The tap `neurons` sees what g returns.
    """

    def __init__(self, d_model: int, d_hidden: int, *, activation: Activation, dropout: float) -> None:
        g = nonlinearity(activation)
        super().__init__(nn.Linear(d_model, d_hidden), g, ElementDropout(dropout), nn.Linear(d_hidden, d_model))
        self.neurons = Tap()

    def forward(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        """The network's output at every position."""
        below, g, dropout, above, neurons = self
        y: Tensor = above(dropout(neurons(g(below(x)))))
        return y


class GatedFeedForward(FeedForward):
    """`W_2 (g(W_1 x + b_1) ⊙ (V x + c)) + b_2` at every position (Shazeer 2020); with g = SiLU it is SwiGLU."""

    def __init__(self, d_model: int, d_hidden: int, *, activation: Activation, dropout: float) -> None:
        super().__init__(d_model, d_hidden, activation=activation, dropout=dropout)
        self.factor = nn.Linear(d_model, d_hidden)

    def forward(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        below, g, dropout, above, neurons, factor = self
        y: Tensor = above(dropout(neurons(g(below(x))) * factor(x)))
        return y


class PostNormBlock(Parallel):
    """`z = LayerNorm(x + SelfAttn(x))`, `y = LayerNorm(z + FFN(z))` (Vaswani et al. 2017; SLP ch. 9).

    Raises `ValueError` for sublayers in parallel, which only `PreNormBlock` has.
    """

    may_be_parallel = False

    def __init__(self, d_model: int, options: BlockOptions | None = None, **keywords: Any) -> None:
        """`keywords` are the fields of `BlockOptions`, which may also be passed as one object."""
        super().__init__()
        self.options = options = options or BlockOptions(**keywords)
        if options.parallel and not self.may_be_parallel:
            raise ValueError(f"{type(self).__name__} is not parallel; that is for norm = pre without a memory")
        self.d_in = self.d_out = d_model
        self.is_causal, self.parallel = options.is_causal, options.parallel
        self.attention = MultiHeadAttention(d_model, options.of_attention())
        network, norm = GatedFeedForward if options.gated else FeedForward, NORMS[options.norm_kind]
        self.d_feedforward = 4 * d_model if options.d_feedforward is None else options.d_feedforward
        self.feedforward = network(d_model, self.d_feedforward, activation=options.activation, dropout=options.dropout)
        self.norm_attention: Any = norm(d_model, options.norm_epsilon) if options.norm_first else nn.Identity()
        self.norm_feedforward = norm(d_model, options.norm_epsilon)
        self.dropout = ElementDropout(options.dropout)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> KVState:
        return self.attention.init_state(batch_size, memory)

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        attended, state = self.attention(self.attended(x), state, mask=mask)
        return self.fed(x, attended), state

    def apart(self, x: Float[Tensor, "1 N d_in"], lengths: Sequence[int]) -> Float[Tensor, "1 N d_out"]:
        """The outputs for texts one after another, of these lengths; see `MultiHeadAttention.apart`."""
        return self.fed(x, self.attention.apart(self.attended(x), lengths))

    def attended(self, x: Float[Tensor, "*shape d_in"]) -> Float[Tensor, "*shape d_in"]:
        """The input of the attention from that of the block."""
        return x

    def fed(self, x: Float[Tensor, "*shape d_in"], attended: Tensor) -> Float[Tensor, "*shape d_out"]:
        """The output from the input and the output of the attention."""
        z = self.norm_attention(x + self.dropout(attended))
        y: Tensor = self.norm_feedforward(z + self.dropout(self.feedforward(z)))
        return y

    def extra_repr(self) -> str:
        return f"d_model={self.d_in}, {self.options}"


class PreNormBlock(PostNormBlock):
    """`z = x + SelfAttn(LayerNorm(x))`, `y = z + FFN(LayerNorm(z))` (Xiong et al. 2020); with `parallel`,
    `y = z + FFN(LayerNorm(x))` (Black et al. 2022).
    """

    may_be_parallel = True

    def attended(self, x: Float[Tensor, "*shape d_in"]) -> Float[Tensor, "*shape d_in"]:
        read: Tensor = self.norm_attention(x)
        return read

    def fed(self, x: Float[Tensor, "*shape d_in"], attended: Tensor) -> Float[Tensor, "*shape d_out"]:
        z = x + self.dropout(attended)
        read = self.norm_feedforward(x if self.parallel else z)
        y: Tensor = z + self.dropout(self.feedforward(read))
        return y


class DecoderBlockState(NamedTuple):
    """The positions that a block has read, and the memory."""

    past: KVState
    memory: Shared


class PostNormDecoderBlock(PostNormBlock):
    """Self-attention, attention to the memory m, feed-forward (Vaswani et al. 2017, section 3.1):

    u = LayerNorm(x + SelfAttn(x))    z = LayerNorm(u + CrossAttn(u, m))    y = LayerNorm(z + FFN(z))
    """

    def __init__(
        self, d_model: int, options: BlockOptions | None = None, *, d_memory: int | None = None, **keywords: Any
    ) -> None:
        """As the block without a memory; it is causal. The memory has `d_memory` features; None: `d_model`."""
        super().__init__(d_model, options, **keywords)
        self.d_memory = d_model if d_memory is None else d_memory
        attention = self.attention
        self.cross_attention = MultiHeadCrossAttention(
            d_model, self.d_memory, num_heads=attention.num_heads, dropout=attention.dropout
        )
        self.norm_cross_attention = type(self.norm_attention)(d_model, self.norm_attention.eps)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> DecoderBlockState:  # type: ignore[override]
        return DecoderBlockState(
            self.attention.init_state(batch_size), self.cross_attention.init_state(batch_size, memory)
        )

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        past, memory = (None, None) if state is None else state
        attended, past = self.attention(x, past, mask=mask)
        u = self.norm_attention(x + self.dropout(attended))
        read, memory = self.cross_attention(u, memory, mask=mask)
        z = self.norm_cross_attention(u + self.dropout(read))
        return self.norm_feedforward(z + self.dropout(self.feedforward(z))), DecoderBlockState(past, memory)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, d_memory={self.d_memory}"


class PreNormDecoderBlock(PostNormDecoderBlock):
    """`u = x + SelfAttn(LayerNorm(x))`, `z = u + CrossAttn(LayerNorm(u), m)`, `y = z + FFN(LayerNorm(z))`."""

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        past, memory = (None, None) if state is None else state
        attended, past = self.attention(self.norm_attention(x), past, mask=mask)
        u = x + self.dropout(attended)
        read, memory = self.cross_attention(self.norm_cross_attention(u), memory, mask=mask)
        z = u + self.dropout(read)
        return z + self.dropout(self.feedforward(self.norm_feedforward(z))), DecoderBlockState(past, memory)
