"""A stack of Transformer blocks with positions: an encoder, the layers of a language model, or a decoder."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from torch import nn

from ensue.nn.attention import blocks
from ensue.nn.attention.positions import LearnedPositions, SinusoidalPositions
from ensue.nn.combinators import Bidirectional, Residual, Stack
from ensue.nn.dropout import Dropout
from ensue.nn.layer import Pointwise, SequenceLayer
from ensue.nn.window import Window

Positions = Literal["learned", "sinusoidal", "rotary", "disentangled"]
Norm = Literal["pre", "post"]
BLOCKS: dict[Norm, tuple[type[SequenceLayer], type[SequenceLayer]]] = {
    "pre": (blocks.PreNormBlock, blocks.PreNormDecoderBlock),
    "post": (blocks.PostNormBlock, blocks.PostNormDecoderBlock),
}
"""The blocks without and with attention to a memory."""


@dataclass(frozen=True, kw_only=True)
class TransformerOptions(blocks.BlockOptions):
    """The options of a `Transformer`, including the options of its blocks."""

    num_layers: int
    activation: blocks.Activation = "gelu"
    positions: Positions = "learned"
    max_positions: int | None = None
    """The maximum number of positions; required for learned and disentangled positions."""
    norm: Norm = "pre"
    norm_input: bool = False
    """Whether the sum of input and positions is normalized (Devlin et al. 2019)."""
    global_every: int = 0
    """With `neighbors`, the first of every `global_every` blocks attends to all positions; 0: no block does."""
    neighbors_base: float | None = None
    """The base of rotary positions in blocks with `neighbors` only (Warner et al. 2024); None: `rotary_base`."""
    d_input: int | None = None
    """Features of the input, mapped to d_model after positions and normalization (Lan et al. 2020); None: d_model."""
    zero_writes: bool = False
    """Whether matrices that write into the residual stream start at zero (Zhang et al. 2019)."""
    window: int = 0
    """The size of a residual `Window` before the blocks, one window for each direction; 0: none."""

    def check(self, *, has_memory: bool) -> None:
        """Raise ValueError for options that exclude each other."""
        blocks.check_choice("positions", self.positions, Positions)
        blocks.check_choice("norm", self.norm, Norm)
        blocks.check_choice("norm_kind", self.norm_kind, blocks.NormKind)
        if has_memory and not self.is_causal:
            raise ValueError("a Transformer that attends to a memory must be causal")
        if self.positions in ("learned", "disentangled") and self.max_positions is None:
            raise ValueError(f"{self.positions} positions need max_positions")
        if self.norm == "post" and not self.norm_first:
            raise ValueError("norm_first = false needs norm = pre")

    def block_options(self, number: int) -> blocks.BlockOptions:
        """Return the options of block `number`, counted from 0."""
        is_global = not self.neighbors or (self.global_every and number % self.global_every == 0)
        return self.to(
            blocks.BlockOptions, rotary=self.positions == "rotary",
            rotary_base=self.rotary_base if is_global else self.neighbors_base or self.rotary_base,
            farthest=self.max_positions or 0 if self.positions == "disentangled" else 0,
            neighbors=0 if is_global else self.neighbors, norm_first=self.norm_first or number > 0,
        )  # fmt: skip


class Transformer(Stack):
    """A `Stack` of positions, `num_layers` blocks and, with pre-norm, a final normalization.

    Matrices are initialized from a normal distribution with σ = 1/√fan-in (LeCun et al. 1998). For the matrices that
    write into the residual stream, σ is also divided by the square root of their number (Radford et al. 2019).
    """

    def __init__(
        self, d_model: int, options: TransformerOptions | None = None, *, d_memory: int | None = None, **keywords: Any
    ) -> None:
        """Build the layers from `options`, or from the fields of `TransformerOptions` as keywords.

        With `d_memory`, the Transformer is a decoder, whose blocks also attend to a memory of `d_memory` features.
        Raises ValueError for options that exclude each other, or a decoder that is not causal.
        """
        options = options or TransformerOptions(**keywords)
        options.check(has_memory=d_memory is not None)
        d_in = d_model if options.d_input is None else options.d_input
        norm = partial(blocks.NORMS[options.norm_kind], eps=options.norm_epsilon)
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
            windows = [Window(d_model, d_model, size=options.window) for _ in range(1 if options.is_causal else 2)]
            layers.append(Residual(windows[0] if options.is_causal else Bidirectional(*windows, merge="sum")))
        memory = {} if d_memory is None else {"d_memory": d_memory}
        block = BLOCKS[options.norm][d_memory is not None]
        layers += [block(d_model, options.block_options(number), **memory) for number in range(options.num_layers)]
        if options.norm == "pre":
            layers.append(Pointwise(norm(d_model), d_in=d_model))
        super().__init__(layers)
        self.description = f"d_model={d_model}, {options}" + (f", d_memory={d_memory}" if d_memory else "")
        num_writes = options.num_layers * (2 if d_memory is None else 3)  # terms of the residual stream
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                writes = name.endswith(("project_out.weight", "feedforward.3.weight"))
                std = 1 / math.sqrt(parameter.shape[1] * (num_writes if writes else 1))
                nn.init.normal_(parameter, std=0.0 if writes and options.zero_writes else std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def extra_repr(self) -> str:
        return self.description
