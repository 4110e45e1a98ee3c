"""The layers between features and head: gates and states over a text, weights of attention.

Seen through taps, in whatever layers there are; a new cell is seen as soon as it has them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.nn import SequenceLayer, tap_names, watch
from ensue.types import exact

MOST_ATTENTION = 2_048
"""The most words of a text whose attention weights are kept."""
SIGNED = {"candidate", "hidden", "h"}
"""Values that may be negative, of which the mean absolute value is shown."""
HIDDEN_FROM_VIEW = {"cell", "c", "neurons", "weights"}
DIMENSIONS = {"time", "depth"}
"""The dimensions of a grid, which has gates along both."""


class Trace(NamedTuple):
    """A layer's taps over the text: by name the mean over its units (T,), of signed ones that of their absolute values.

    `layer` counts from 1; `direction` is "left to right" or "right to left". A grid's layer has two traces in each, say
    "left to right, time" and "left to right, depth".
    """

    layer: int
    direction: str
    means: dict[str, NDArray[np.float64]]


class Attention(NamedTuple):
    """The weights (H, T, T) of one layer: row t is what position t looks at."""

    layer: int
    weights: NDArray[np.float32]


@torch.inference_mode()
def traces_of(layers: nn.Module, x: Tensor) -> list[Trace]:
    """The traces of every recurrent or window layer, in each direction, for a text with features (1, T, d)."""
    if not isinstance(layers, SequenceLayer):  # what reads subwords has no values of words
        return []
    names = [name for name in tap_names(layers) if name.rpartition(".")[2] not in HIDDEN_FROM_VIEW]
    if not names:
        return []
    with watch(layers, *names) as seen:
        layers(x)
    found: dict[tuple[str, str], dict[str, NDArray[np.float64]]] = {}
    for name, tensors in seen.items():
        tap = name.rpartition(".")[2]
        found.setdefault(place_of(name), {})[tap] = _means(tap, tensors, backward="leftward" in name)
    numbers = {layer: number for number, layer in enumerate(dict.fromkeys(layer for layer, _ in found), start=1)}
    return [Trace(numbers[layer], direction, means) for (layer, direction), means in found.items()]


@torch.inference_mode()
def attention_of(layers: nn.Module, x: Tensor) -> list[Attention] | None:
    """The weights of every layer with attention; None if the text has more than `MOST_ATTENTION` words."""
    if not isinstance(layers, SequenceLayer):
        return []
    names = [name for name in tap_names(layers) if name.rpartition(".")[2] == "weights"]
    if not names:
        return []
    if x.shape[1] > MOST_ATTENTION:
        return None
    with watch(layers, *names) as seen:
        layers(x)
    return [Attention(layer, seen[name][0][0].float().cpu().numpy()) for layer, name in enumerate(names, start=1)]


def _means(tap: str, tensors: list[Tensor], *, backward: bool) -> NDArray[np.float64]:
    values = over_text(tensors)
    means = exact(values.abs() if tap in SIGNED else values).mean(-1).cpu().numpy()
    return means[::-1] if backward else means


def over_text(tensors: list[Tensor]) -> Tensor:
    """The values (T, d) at one tap. A recurrent layer's are seen once a position with (1, d), others with (1, T, d)."""
    return tensors[0][0] if tensors[0].dim() == 3 else torch.cat(tensors)


def place_of(name: str) -> tuple[str, str]:
    """The layer of the tap with this name, the same for both directions, and the direction.

    What has a number is a layer in a stack; what is below it are the layer's parts.
    """
    *owners, _ = name.split(".")
    direction = "right to left" if "leftward" in owners else "left to right"
    dimension = "".join(f", {owner}" for owner in owners if owner in DIMENSIONS)
    last = max((place for place, owner in enumerate(owners, start=1) if owner.isdecimal()), default=0)
    layer = [owner for owner in owners[:last] if owner not in ("rightward", "leftward")]
    return ".".join(layer), direction + dimension
