"""Vectors of words that other models have worked out in their layers, as features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn import ScalarMix


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
