"""A stack of Transformer blocks with positions: an encoder, a language model's layers, or a decoder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from torch import nn

from ensue.nn.attention.blocks import (
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


@dataclass(frozen=True, kw_only=True)
class TransformerOptions(BlockOptions):
    """The options of a `Transformer`: those of its blocks, and of the layers around them."""

    num_layers: int
    activation: Activation = "gelu"
    positions: Positions = "learned"
    max_positions: int | None = None
    """The longest context, which learned and disentangled positions need."""
    norm: Norm = "pre"
    norm_input: bool = False
    """Whether the input with its positions is normalized too (Devlin et al. 2019)."""
    global_every: int = 0
    """The first of so many blocks attends to all positions in spite of `neighbors`; 0: none does."""
    neighbors_base: float | None = None
    """The base of rotary positions in blocks that attend to neighbors alone (Warner et al. 2024)."""
    d_input: int | None = None
    """Features of the input, of which a linear map makes d_model behind positions and normalization (Lan et al. 2020);
    None: d_model.
    """
    zero_writes: bool = False
    """Whether matrices that write into the residual stream start at zero (Zhang et al. 2019)."""
    window: int = 0
    """Positions of a `Window`, one for each direction, in front of the blocks, whose output is added to its input."""

    def check(self, *, has_memory: bool) -> None:
        """Raises `ValueError` for options that do not go together."""
        checked("positions", self.positions, Positions)
        checked("norm", self.norm, Norm)
        checked("norm_kind", self.norm_kind, NormKind)
        if has_memory and not self.is_causal:
            raise ValueError("a Transformer that attends to a memory is causal")
        if self.positions in ("learned", "disentangled") and self.max_positions is None:
            raise ValueError(f"{self.positions} positions need max_positions")
        if self.norm == "post" and not self.norm_first:
            raise ValueError("a first block without a normalization before it is for norm = pre")

    def of_block(self, number: int) -> BlockOptions:
        """The options of a block, counted from 0."""
        is_global = not self.neighbors or (self.global_every and number % self.global_every == 0)
        return self.to(
            BlockOptions,
            rotary=self.positions == "rotary",
            rotary_base=self.rotary_base if is_global else self.neighbors_base or self.rotary_base,
            farthest=self.max_positions or 0 if self.positions == "disentangled" else 0,
            neighbors=0 if is_global else self.neighbors,
            norm_first=self.norm_first or number > 0,
        )


class Transformer(Stack):
    """Positions, `num_layers` blocks and, with pre-norm, a last normalization, as a `Stack`.

    Matrices start normal with σ = 1/√fan-in (LeCun et al. 1998). For those that write into the residual stream σ is
    divided by the square root of their number (Radford et al. 2019).
    """

    def __init__(
        self, d_model: int, options: TransformerOptions | None = None, *, d_memory: int | None = None, **keywords: Any
    ) -> None:
        """Builds the layers.

        Args:
            d_model: Features of the output.
            options: The options as one object.
            d_memory: Features of the memory to which a decoder's blocks also attend; None: there is no memory.
            keywords: The fields of `TransformerOptions` and `BlockOptions`, in place of `options`.

        Raises:
            ValueError: For options that do not go together, or a decoder that is not causal.
        """
        options = options or TransformerOptions(**keywords)
        options.check(has_memory=d_memory is not None)
        d_in = d_model if options.d_input is None else options.d_input
        norm = partial(NORMS[options.norm_kind], eps=options.norm_epsilon)
        layers: list[SequenceLayer] = []
        if options.positions == "learned":
            assert options.max_positions is not None
            layers.append(LearnedPositions(d_in, max_positions=options.max_positions))
        elif options.positions == "sinusoidal":
            layers.append(SinusoidalPositions(d_in))
        if options.norm_input:
            layers.append(Pointwise(norm(d_in), d_in=d_in))
        layers.append(Dropout(options.dropout, d_in=d_in))
        if options.d_input is not None:
            layers.append(Pointwise(nn.Linear(d_in, d_model), d_in=d_in, d_out=d_model))
        if options.window:
            near = [Window(d_model, d_model, size=options.window) for _ in range(1 if options.is_causal else 2)]
            layers.append(Residual(near[0] if options.is_causal else Bidirectional(*near, merge="sum")))
        memory = {} if d_memory is None else {"d_memory": d_memory}
        block = BLOCKS[options.norm][d_memory is not None]
        layers += [block(d_model, options.of_block(number), **memory) for number in range(options.num_layers)]
        if options.norm == "pre":
            layers.append(Pointwise(norm(d_model), d_in=d_model))
        super().__init__(layers)
        self.description = f"d_model={d_model}, {options}" + (f", d_memory={d_memory}" if d_memory else "")
        self._init_weights(options.zero_writes, terms=options.num_layers * (2 if d_memory is None else 3))

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
