"""The output of each layer of a stack. Dropout, positions, norms and projections belong to the layer before them."""

from __future__ import annotations

from collections.abc import Iterator

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from ensue.nn import LearnedPositions, Pointwise, SequenceLayer, SinusoidalPositions, Stack, VariationalDropout

NO_LAYERS = (Pointwise, LearnedPositions, SinusoidalPositions, VariationalDropout)


def layer_outputs(
    layers: SequenceLayer, x: Float[Tensor, "B T d"], mask: Bool[Tensor, "B T"] | None = None
) -> list[Float[Tensor, "B T _"]]:
    """What enters the first layer, and the output of each."""
    found = [x]
    for layer in flat(layers):
        x, _ = layer(x, mask=mask)
        if isinstance(layer, NO_LAYERS):
            found[-1] = x
        else:
            found.append(x)
    return found


def widened(outputs: list[Float[Tensor, "B T _"]]) -> list[Float[Tensor, "B T d"]]:
    """All as wide as the widest, with zeros behind."""
    d = max(output.shape[-1] for output in outputs)
    return [F.pad(output, (0, d - output.shape[-1])) for output in outputs]


def output_sizes(layers: SequenceLayer) -> list[int]:
    """The sizes of `layer_outputs`."""
    sizes = [layers.d_in]
    for layer in flat(layers):
        if isinstance(layer, NO_LAYERS):
            sizes[-1] = layer.d_out
        else:
            sizes.append(layer.d_out)
    return sizes


def flat(layers: SequenceLayer) -> Iterator[SequenceLayer]:
    """The layers of stacks, and of stacks in them, one after another."""
    if isinstance(layers, Stack):
        for layer in layers:
            yield from flat(layer)
    else:
        yield layers
