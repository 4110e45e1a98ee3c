"""The output of each layer of a stack, and contextual features from these outputs.

Dropout, positions, normalizations and projections are not counted as layers: they change the output before them.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn import LearnedPositions, Pointwise, ScalarMix, SequenceLayer, SinusoidalPositions, Stack
from ensue.nn.dropout import VariationalDropout
from ensue.types import Mask, State

UNCOUNTED_LAYERS = (Pointwise, LearnedPositions, SinusoidalPositions, VariationalDropout)


def layer_outputs(layers: SequenceLayer, x: Float[Tensor, "B T d"], mask: Mask = None) -> list[Float[Tensor, "B T _"]]:
    """Return the input of the first layer, and the output of each layer."""
    return read_layers(layers, x, mask=mask)[0]


def read_layers(
    layers: SequenceLayer, x: Float[Tensor, "B T d"], state: State = None, *, mask: Mask = None
) -> tuple[list[Float[Tensor, "B T _"]], State]:
    """Return the input of the first layer and the output of each layer, and the final state."""
    if not isinstance(layers, Stack):
        y, state = layers(x, state, mask=mask)
        return [y] if isinstance(layers, UNCOUNTED_LAYERS) else [x, y], state
    outputs, states = [x], []
    for layer, before in zip(layers, state or [None] * len(layers), strict=True):
        outputs[-1:], after = read_layers(layer, outputs[-1], before, mask=mask)
        states.append(after)
    return outputs, tuple(states)


def pad_features(outputs: list[Float[Tensor, "B T _"]]) -> list[Float[Tensor, "B T d"]]:
    """Return the outputs, padded with zeros to the maximum number of features."""
    d = max(output.shape[-1] for output in outputs)
    return [F.pad(output, (0, d - output.shape[-1])) for output in outputs]


def output_sizes(layers: SequenceLayer) -> list[int]:
    """Return the number of features of each of the `layer_outputs`."""
    if not isinstance(layers, Stack):
        return [layers.d_out] if isinstance(layers, UNCOUNTED_LAYERS) else [layers.d_in, layers.d_out]
    sizes = [layers.d_in]
    for layer in layers:
        sizes[-1:] = output_sizes(layer)
    return sizes


class LayersShape(NamedTuple):
    """The number of layers of another model, and the number d of features of each layer."""

    num_layers: int
    d: int


class ContextualVectors(nn.Module):
    """Features (B, T, d_out) from the layers of one or several other models, each (B, T, L, d).

    The L layers of a model are summed with trained weights, or concatenated.
    """

    def __init__(self, shapes: Sequence[LayersShape], *, mix: Literal["sum", "concatenate"]) -> None:
        super().__init__()
        is_sum = mix == "sum"
        self.mixes = nn.ModuleList(ScalarMix(shape.num_layers) if is_sum else nn.Flatten(-2) for shape in shapes)
        self.d_out = sum(shape.d if is_sum else shape.num_layers * shape.d for shape in shapes)

    def forward(self, layers: Sequence[Float[Tensor, "B T _ _"]]) -> Float[Tensor, "B T d_out"]:
        """Return the features of a batch."""
        return torch.cat([mix(outputs) for mix, outputs in zip(self.mixes, layers, strict=True)], dim=-1)
