"""Transformer blocks, post-norm as published and pre-norm, and a stack of them with positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.nn.attention.multi_head import KVState, MultiHeadAttention
from ensue.nn.attention.positions import LearnedPositions, SinusoidalPositions
from ensue.nn.combinators import Stack
from ensue.nn.dropout import Dropout, ElementDropout
from ensue.nn.layer import Parallel, Pointwise, SequenceLayer
from ensue.types import Memory, State

Positions = Literal["learned", "sinusoidal", "rotary"]
Norm = Literal["pre", "post"]
Activation = Literal["relu", "gelu"]


def checked(what: str, value: str, choices: Any) -> None:
    """Raises `ValueError` unless `value` is one of the `choices`, a `Literal`."""
    if value not in get_args(choices):
        raise ValueError(f"{what} is one of {', '.join(get_args(choices))}, not {value!r}")


class FeedForward(nn.Sequential):
    """`W_2 g(W_1 x + b_1) + b_2` at every position (Vaswani et al. 2017, eq. 2), with g = ReLU or GELU."""

    def __init__(self, d_model: int, d_hidden: int, *, activation: Activation, dropout: float) -> None:
        checked("activation", activation, Activation)
        nonlinearity = nn.ReLU() if activation == "relu" else nn.GELU()
        super().__init__(
            nn.Linear(d_model, d_hidden), nonlinearity, ElementDropout(dropout), nn.Linear(d_hidden, d_model)
        )


class PostNormBlock(Parallel):
    """`z = LayerNorm(x + SelfAttn(x))`, `y = LayerNorm(z + FFN(z))` (Vaswani et al. 2017; SLP ch. 9)."""

    def __init__(
        self,
        d_model: int,
        *,
        num_heads: int,
        d_feedforward: int,
        dropout: float = 0.0,
        dropout_attention: float | None = None,
        activation: Activation = "relu",
        is_causal: bool = True,
        rotary: bool = False,
    ) -> None:
        super().__init__()
        self.d_in = self.d_out = d_model
        self.is_causal = is_causal
        self.attention = MultiHeadAttention(
            d_model,
            num_heads=num_heads,
            dropout=dropout if dropout_attention is None else dropout_attention,
            is_causal=is_causal,
            rotary=rotary,
        )
        self.feedforward = FeedForward(d_model, d_feedforward, activation=activation, dropout=dropout)
        self.norm_attention, self.norm_feedforward = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout = ElementDropout(dropout)
        self.activation, self.d_feedforward = activation, d_feedforward

    def init_state(self, batch_size: int, memory: Memory | None = None) -> KVState:
        return self.attention.init_state(batch_size, memory)

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        attended, state = self.attention(x, state, mask=mask)
        z = self.norm_attention(x + self.dropout(attended))
        return self.norm_feedforward(z + self.dropout(self.feedforward(z))), state

    def extra_repr(self) -> str:
        return f"{self.attention.extra_repr()}, d_feedforward={self.d_feedforward}, activation={self.activation!r}"


class PreNormBlock(PostNormBlock):
    """`z = x + SelfAttn(LayerNorm(x))`, `y = z + FFN(LayerNorm(z))` (Xiong et al. 2020)."""

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        attended, state = self.attention(self.norm_attention(x), state, mask=mask)
        z = x + self.dropout(attended)
        return z + self.dropout(self.feedforward(self.norm_feedforward(z))), state


class Transformer(Stack):
    """Positions, `num_layers` blocks and, with pre-norm, a last normalization, as a `Stack`.

    Learned positions need `max_positions`, the longest context. Matrices start normal with σ = 1/√fan-in (LeCun et al.
    1998); for those that write into the residual stream σ is divided by √(2 · num_layers) (Radford et al. 2019).
    Biases start at zero.
    """

    def __init__(
        self,
        d_model: int,
        *,
        num_heads: int,
        num_layers: int,
        d_feedforward: int | None = None,
        positions: Positions = "learned",
        max_positions: int | None = None,
        norm: Norm = "pre",
        activation: Activation = "gelu",
        dropout: float = 0.0,
        dropout_attention: float | None = None,
        is_causal: bool = True,
    ) -> None:
        kind = PreNormBlock if norm == "pre" else PostNormBlock
        d_feedforward = 4 * d_model if d_feedforward is None else d_feedforward
        block = partial(
            kind,
            d_model,
            num_heads=num_heads,
            d_feedforward=d_feedforward,
            dropout=dropout,
            dropout_attention=dropout_attention,
            activation=activation,
            is_causal=is_causal,
            rotary=positions == "rotary",
        )
        layers = with_positions(
            d_model, [block] * num_layers, positions=positions, max_positions=max_positions, norm=norm, dropout=dropout
        )
        super().__init__(layers)
        self.description = (
            f"d_model={d_model}, num_heads={num_heads}, num_layers={num_layers}, d_feedforward={d_feedforward}, "
            f"positions={positions!r}, max_positions={max_positions}, norm={norm!r}, activation={activation!r}, "
            f"dropout={dropout}, dropout_attention={dropout_attention}, is_causal={is_causal}"
        )
        init_weights(self, depth=2 * num_layers)

    def extra_repr(self) -> str:
        return self.description


def with_positions(
    d_model: int,
    blocks: Sequence[Callable[[], SequenceLayer]],
    *,
    positions: Positions,
    max_positions: int | None,
    norm: Norm,
    dropout: float,
) -> list[SequenceLayer]:
    """The layers of a stack of `blocks`: positions, dropout, the blocks and, with pre-norm, a last normalization."""
    checked("positions", positions, Positions)
    checked("norm", norm, Norm)
    layers: list[SequenceLayer] = []
    if positions == "learned":
        if max_positions is None:
            raise ValueError("learned positions need max_positions")
        layers.append(LearnedPositions(d_model, max_positions=max_positions))
    elif positions == "sinusoidal":
        layers.append(SinusoidalPositions(d_model))
    layers.append(Dropout(dropout, d_in=d_model))
    layers.extend(block() for block in blocks)
    if norm == "pre":
        layers.append(Pointwise(nn.LayerNorm(d_model), d_in=d_model))
    return layers


def init_weights(stack: nn.Module, *, depth: int) -> None:
    """The beginning of a `Transformer`; `depth` is the number of terms that its layers add to the residual stream."""
    for name, parameter in stack.named_parameters():
        if parameter.dim() == 2:
            writes = name.endswith(("project_out.weight", "feedforward.3.weight"))
            torch.nn.init.normal_(parameter, std=1 / math.sqrt(parameter.shape[1] * (depth if writes else 1)))
        elif name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
