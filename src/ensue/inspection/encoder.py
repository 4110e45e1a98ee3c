"""The activations of an encoder over a text: gates and states of recurrent layers, and attention weights.

Taps record the activations, so that a new layer with taps needs no code in this file.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.nn import SequenceLayer, tap_names, watch
from ensue.types import to_float64

MAX_ATTENTION_WORDS = 2_048
"""The maximum length of a text whose attention weights are recorded, in words."""
SIGNED = {"candidate", "hidden", "h"}
"""Taps with signed values. Pages show the mean of their absolute values."""
HIDDEN_FROM_VIEW = {"cell", "c", "neurons", "weights"}
"""Taps that are not part of a trace."""
DIMENSIONS = {"time", "depth"}
"""The dimensions of a grid LSTM, which has gates for each dimension."""


class LayerTrace(NamedTuple):
    """The means (T,) over the units of a layer, by tap. Signed taps are averaged as absolute values.

    `layer` counts from 1; `direction` is "left to right" or "right to left". A layer of a grid LSTM has two traces for
    each direction, such as "left to right, time" and "left to right, depth".
    """

    layer: int
    direction: str
    means: dict[str, NDArray[np.float64]]


class LayerAttention(NamedTuple):
    """The attention weights (H, T, T) of a layer: heads, queries, keys."""

    layer: int
    weights: NDArray[np.float32]


@torch.inference_mode()
def trace_layers(layers: nn.Module, x: Tensor) -> list[LayerTrace]:
    """Return the traces of every recurrent or window layer, in each direction, for a text with features (1, T, d)."""
    if not isinstance(layers, SequenceLayer):  # an encoder of subwords has no activations per word
        return []
    names = [name for name in tap_names(layers) if name.rpartition(".")[2] not in HIDDEN_FROM_VIEW]
    if not names:
        return []
    with watch(layers, *names) as values_at:
        layers(x)
    means: dict[tuple[str, str], dict[str, NDArray[np.float64]]] = {}
    for name, tensors in values_at.items():
        tap = name.rpartition(".")[2]
        values = join_steps(tensors)
        by_position = to_float64(values.abs() if tap in SIGNED else values).mean(-1).cpu().numpy()
        means.setdefault(locate_tap(name), {})[tap] = by_position[::-1] if "leftward" in name else by_position
    numbers = {layer: number for number, layer in enumerate(dict.fromkeys(layer for layer, _ in means), start=1)}
    return [LayerTrace(numbers[layer], direction, by_tap) for (layer, direction), by_tap in means.items()]


@torch.inference_mode()
def record_attention(layers: nn.Module, x: Tensor) -> list[LayerAttention] | None:
    """Return the weights of every layer with attention; None if the text has more than MAX_ATTENTION_WORDS words."""
    if not isinstance(layers, SequenceLayer):
        return []
    names = [name for name in tap_names(layers) if name.rpartition(".")[2] == "weights"]
    if not names:
        return []
    if x.shape[1] > MAX_ATTENTION_WORDS:
        return None
    with watch(layers, *names) as values_at:
        layers(x)
    return [LayerAttention(layer, values_at[name][0][0].float().cpu().numpy()) for layer, name in enumerate(names, 1)]


def join_steps(tensors: list[Tensor]) -> Tensor:
    """Return the values (T, d) of a tap: recurrent layers record T tensors (1, d), other layers a tensor (1, T, d)."""
    return tensors[0][0] if tensors[0].dim() == 3 else torch.cat(tensors)


def locate_tap(name: str) -> tuple[str, str]:
    """Return the name of a tap's layer, which is equal for both directions of the layer, and the direction.

    The last number in the name of a tap is the number of the layer in its stack.
    """
    *owners, _ = name.split(".")
    direction = "right to left" if "leftward" in owners else "left to right"
    dimension = "".join(f", {owner}" for owner in owners if owner in DIMENSIONS)
    last = max((index for index, owner in enumerate(owners, start=1) if owner.isdecimal()), default=0)
    layer = [owner for owner in owners[:last] if owner not in ("rightward", "leftward")]
    return ".".join(layer), direction + dimension
