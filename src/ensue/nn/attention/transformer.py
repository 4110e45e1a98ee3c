"""A stack of Transformer blocks with positions: an encoder, a language model's layers, or a decoder."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, Literal

from torch import nn

from ensue.nn.attention.blocks import (
    EPSILON,
    NORMS,
    Activation,
    BlockOptions,
    NormKind,
    PostNormBlock,
    PostNormDecoderBlock,
    PreNormBlock,
    PreNormDecoderBlock,
    checked,
)
from ensue.nn.attention.positions import LearnedPositions, SinusoidalPositions
from ensue.nn.combinators import Bidirectional, Residual, Stack
from ensue.nn.dropout import Dropout
from ensue.nn.layer import Pointwise, SequenceLayer
from ensue.nn.window import Window

Positions = Literal["learned", "sinusoidal", "rotary", "disentangled"]
Norm = Literal["pre", "post"]
BLOCKS: dict[Norm, tuple[type[SequenceLayer], type[SequenceLayer]]] = {
    "pre": (PreNormBlock, PreNormDecoderBlock),
    "post": (PostNormBlock, PostNormDecoderBlock),
}
"""The blocks without and with attention to a memory."""


class Transformer(Stack):
    """Positions, `num_layers` blocks and, with pre-norm, a last normalization, as a `Stack`.

    With `d_memory` it is a decoder: its blocks also attend to a memory of so many features. Learned positions need
    `max_positions`, the longest context. With `norm_input` the input with its positions is normalized too (Devlin et
    al. 2019); without `norm_first` the attention of the first block reads it as it is. Blocks attend to `neighbors`
    alone, but for the first of `global_every` ones; `neighbors_base` is the base of their rotary positions (Warner et
    al. 2024). `norm_epsilon` is added to variances. With `d_input` the input has so many features; a linear map makes
    d_model of them behind positions and normalization (Lan et al. 2020). With `window` a `Window` of so many positions,
    or one for each direction, stands in front of the blocks, with a bypass: the blocks begin with what is near a token.
    `options` are those of `BlockOptions`.

    Matrices start normal with σ = 1/√fan-in (LeCun et al. 1998); for those that write into the residual stream σ is
    divided by the square root of their number (Radford et al. 2019), or they start at zero if `zero_writes` is set
    (Zhang et al. 2019), so that a block starts with its input as its output. Biases start at zero. Raises `ValueError`
    for a decoder that is not causal.
    """

    def __init__(
        self, d_model: int, *, num_heads: int, num_layers: int, d_feedforward: int | None = None,
        d_memory: int | None = None, positions: Positions = "learned", max_positions: int | None = None,
        norm: Norm = "pre", activation: Activation = "gelu", dropout: float = 0.0,
        dropout_attention: float | None = None, is_causal: bool = True, norm_input: bool = False,
        norm_epsilon: float = EPSILON, norm_kind: NormKind = "layer", norm_first: bool = True, neighbors: int = 0,
        global_every: int = 0, neighbors_base: float | None = None, d_input: int | None = None,
        zero_writes: bool = False, window: int = 0, **options: Any,
    ) -> None:  # fmt: skip
        checked("positions", positions, Positions)
        checked("norm", norm, Norm)
        checked("norm_kind", norm_kind, NormKind)
        if d_memory is not None and not is_causal:
            raise ValueError("a Transformer that attends to a memory is causal")
        if positions in ("learned", "disentangled") and max_positions is None:
            raise ValueError(f"{positions} positions need max_positions")
        if norm == "post" and not norm_first:
            raise ValueError("a first block without a normalization before it is for norm = pre")
        d_feedforward = 4 * d_model if d_feedforward is None else d_feedforward
        given = asdict(BlockOptions(
            num_heads=num_heads, d_feedforward=d_feedforward, dropout=dropout, dropout_attention=dropout_attention,
            activation=activation, is_causal=is_causal, rotary=positions == "rotary", norm_epsilon=norm_epsilon,
            norm_kind=norm_kind, farthest=max_positions or 0 if positions == "disentangled" else 0, **options,
        ))  # fmt: skip
        memory = {} if d_memory is None else {"d_memory": d_memory}
        block = BLOCKS[norm][d_memory is not None]
        layers: list[SequenceLayer] = []
        d_in = d_model if d_input is None else d_input
        if positions == "learned":
            assert max_positions is not None
            layers.append(LearnedPositions(d_in, max_positions=max_positions))
        elif positions == "sinusoidal":
            layers.append(SinusoidalPositions(d_in))
        if norm_input:
            layers.append(Pointwise(NORMS[norm_kind](d_in, norm_epsilon), d_in=d_in))
        layers.append(Dropout(dropout, d_in=d_in))
        if d_input is not None:
            layers.append(Pointwise(nn.Linear(d_in, d_model), d_in=d_in, d_out=d_model))
        if window:
            near = [Window(d_model, d_model, size=window) for _ in range(1 if is_causal else 2)]
            layers.append(Residual(near[0] if is_causal else Bidirectional(*near, merge="sum")))
        for number in range(num_layers):
            own: dict[str, Any] = {"norm_first": norm_first or number > 0}
            if neighbors and not (global_every and number % global_every == 0):
                own |= {"neighbors": neighbors, "rotary_base": neighbors_base or given["rotary_base"]}
            layers.append(block(d_model, **given | own, **memory))
        if norm == "pre":
            layers.append(Pointwise(NORMS[norm_kind](d_model, norm_epsilon), d_in=d_model))
        super().__init__(layers)
        self.description = (
            f"d_model={d_model}, num_heads={num_heads}, num_layers={num_layers}, d_feedforward={d_feedforward}, "
            f"d_memory={d_memory}, positions={positions!r}, max_positions={max_positions}, norm={norm!r}, "
            f"activation={activation!r}, dropout={dropout}, dropout_attention={dropout_attention}, "
            f"is_causal={is_causal}, norm_input={norm_input}, norm_epsilon={norm_epsilon}"
            + "".join(f", {name}={value!r}" for name, value in options.items())
            + (", zero_writes=True" if zero_writes else "")
            + (f", window={window}" if window else "")
            + (f", neighbors={neighbors}, global_every={global_every}" if neighbors else "")
        )
        self._init_weights(zero_writes, terms=num_layers * (2 if d_memory is None else 3))

    def _init_weights(self, zero_writes: bool, *, terms: int) -> None:
        """`terms` is the number of those that the layers add to the residual stream."""
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                writes = name.endswith(("project_out.weight", "feedforward.3.weight"))
                std = 1 / math.sqrt(parameter.shape[1] * (terms if writes else 1))
                nn.init.normal_(parameter, std=0.0 if writes and zero_writes else std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def extra_repr(self) -> str:
        return self.description
