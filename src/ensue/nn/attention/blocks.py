"""Transformer blocks: self-attention and a feed-forward network, post-norm as published and pre-norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.nn.attention.multi_head import KVState, MultiHeadAttention
from ensue.nn.dropout import ElementDropout
from ensue.nn.layer import Parallel
from ensue.nn.taps import Tap
from ensue.types import Memory, State

Activation = Literal["relu", "gelu", "gelu-tanh"]
EPSILON = 1e-5


def checked(what: str, value: str, choices: Any) -> None:
    """Raises `ValueError` unless `value` is one of the `choices`, a `Literal`."""
    if value not in get_args(choices):
        raise ValueError(f"{what} is one of {', '.join(get_args(choices))}, not {value!r}")


def nonlinearity(activation: Activation) -> nn.Module:
    """The module of its name; "gelu-tanh" is the GELU by a tanh, as in GPT (Hendrycks & Gimpel 2016)."""
    checked("activation", activation, Activation)
    return nn.ReLU() if activation == "relu" else nn.GELU("tanh" if activation == "gelu-tanh" else "none")


@dataclass(frozen=True, kw_only=True)
class BlockOptions:
    """The options of a Transformer block. `norm_epsilon` is added to variances."""

    num_heads: int
    d_feedforward: int | None = None
    """Width of the feed-forward network; None: 4 · d_model."""
    dropout: float = 0.0
    dropout_attention: float | None = None
    """Dropout on the weights of the attention; None: `dropout`."""
    activation: Activation = "relu"
    is_causal: bool = True
    rotary: bool = False
    norm_epsilon: float = EPSILON


class FeedForward(nn.Sequential):
    """`W_2 g(W_1 x + b_1) + b_2` at every position (Vaswani et al. 2017, eq. 2), with g = ReLU or GELU.

    The tap `neurons` sees what g returns.
    """

    def __init__(self, d_model: int, d_hidden: int, *, activation: Activation, dropout: float) -> None:
        g = nonlinearity(activation)
        super().__init__(nn.Linear(d_model, d_hidden), g, ElementDropout(dropout), nn.Linear(d_hidden, d_model))
        self.neurons = Tap()

    def forward(self, x: Float[Tensor, "B T d"]) -> Float[Tensor, "B T d"]:
        """The network's output at every position."""
        below, g, dropout, above, neurons = self
        y: Tensor = above(dropout(neurons(g(below(x)))))
        return y


class PostNormBlock(Parallel):
    """`z = LayerNorm(x + SelfAttn(x))`, `y = LayerNorm(z + FFN(z))` (Vaswani et al. 2017; SLP ch. 9)."""

    def __init__(self, d_model: int, **options: Any) -> None:
        """`options` are those of `BlockOptions`."""
        super().__init__()
        given = BlockOptions(**options)
        self.d_in = self.d_out = d_model
        self.is_causal = given.is_causal
        self.attention = MultiHeadAttention(
            d_model,
            num_heads=given.num_heads,
            dropout=given.dropout if given.dropout_attention is None else given.dropout_attention,
            is_causal=given.is_causal,
            rotary=given.rotary,
        )
        self.d_feedforward = 4 * d_model if given.d_feedforward is None else given.d_feedforward
        self.activation = given.activation
        self.feedforward = FeedForward(d_model, self.d_feedforward, activation=given.activation, dropout=given.dropout)
        self.norm_attention = nn.LayerNorm(d_model, given.norm_epsilon)
        self.norm_feedforward = nn.LayerNorm(d_model, given.norm_epsilon)
        self.dropout = ElementDropout(given.dropout)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> KVState:
        return self.attention.init_state(batch_size, memory)

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        attended, state = self.attention(x, state, mask=mask)
        return self._fed(x, attended), state

    def apart(self, x: Float[Tensor, "1 N d_in"], lengths: Sequence[int]) -> Float[Tensor, "1 N d_out"]:
        """The outputs for texts one after another, of these lengths; see `MultiHeadAttention.apart`."""
        return self._fed(x, self.attention.apart(x, lengths))

    def _fed(self, x: Tensor, attended: Tensor) -> Tensor:
        """The output from the input and the output of the attention."""
        z = self.norm_attention(x + self.dropout(attended))
        y: Tensor = self.norm_feedforward(z + self.dropout(self.feedforward(z)))
        return y

    def extra_repr(self) -> str:
        return f"{self.attention.extra_repr()}, d_feedforward={self.d_feedforward}, activation={self.activation!r}"


class PreNormBlock(PostNormBlock):
    """`z = x + SelfAttn(LayerNorm(x))`, `y = z + FFN(LayerNorm(z))` (Xiong et al. 2020)."""

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        attended, state = self.attention(self.norm_attention(x), state, mask=mask)
        return self._fed(x, attended), state

    def apart(self, x: Float[Tensor, "1 N d_in"], lengths: Sequence[int]) -> Float[Tensor, "1 N d_out"]:
        return self._fed(x, self.attention.apart(self.norm_attention(x), lengths))

    def _fed(self, x: Tensor, attended: Tensor) -> Tensor:
        z = x + self.dropout(attended)
        y: Tensor = z + self.dropout(self.feedforward(self.norm_feedforward(z)))
        return y
