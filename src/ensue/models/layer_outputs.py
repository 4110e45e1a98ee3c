"""The output of each layer of a stack. Dropout, positions, norms and projections belong to the layer before them.

`ContextualVectors` are features of words that other models have worked out in their layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.nn import (
    LearnedPositions,
    Pointwise,
    ScalarMix,
    SequenceLayer,
    SinusoidalPositions,
    Stack,
    VariationalDropout,
)
from ensue.types import State

NO_LAYERS = (Pointwise, LearnedPositions, SinusoidalPositions, VariationalDropout)


def layer_outputs(
    layers: SequenceLayer, x: Float[Tensor, "B T d"], mask: Bool[Tensor, "B T"] | None = None
) -> list[Float[Tensor, "B T _"]]:
    """The input of the first layer, and the output of each."""
    return read_layers(layers, x, mask=mask)[0]


def read_layers(
    layers: SequenceLayer, x: Float[Tensor, "B T d"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
) -> tuple[list[Float[Tensor, "B T _"]], State]:
    """The input of the first layer, and the output of each; and the state of the layers at the end."""
    if not isinstance(layers, Stack):
        y, state = layers(x, state, mask=mask)
        return [y] if isinstance(layers, NO_LAYERS) else [x, y], state
    found, states = [x], []
    for layer, before in zip(layers, state or [None] * len(layers), strict=True):
        found[-1:], after = read_layers(layer, found[-1], before, mask=mask)
        states.append(after)
    return found, tuple(states)


def widened(outputs: list[Float[Tensor, "B T _"]]) -> list[Float[Tensor, "B T d"]]:
    """All as wide as the widest, with zeros behind."""
    d = max(output.shape[-1] for output in outputs)
    return [F.pad(output, (0, d - output.shape[-1])) for output in outputs]


def output_sizes(layers: SequenceLayer) -> list[int]:
    """The sizes of `layer_outputs`."""
    if not isinstance(layers, Stack):
        return [layers.d_out] if isinstance(layers, NO_LAYERS) else [layers.d_in, layers.d_out]
    sizes = [layers.d_in]
    for layer in layers:
        sizes[-1:] = output_sizes(layer)
    return sizes


class LayersShape(NamedTuple):
    """The vectors of words in another model: L layers of d numbers each."""

    num_layers: int
    d: int


class ContextualVectors(nn.Module):
    """The layers of other models, one tensor (B, T, L, d) for each, as features (B, T, d_out).

    Those of a model are added up with trained weights, or stand side by side.
    """

    def __init__(self, shapes: Sequence[LayersShape], *, mix: Literal["sum", "concatenate"]) -> None:
        super().__init__()
        is_sum = mix == "sum"
        self.mixes = nn.ModuleList(ScalarMix(shape.num_layers) if is_sum else nn.Flatten(-2) for shape in shapes)
        self.d_out = sum(shape.d if is_sum else shape.num_layers * shape.d for shape in shapes)

    def forward(self, layers: Sequence[Float[Tensor, "B T _ _"]]) -> Float[Tensor, "B T d_out"]:
        """The features of a batch."""
        return torch.cat([mix(part) for mix, part in zip(self.mixes, layers, strict=True)], dim=-1)
