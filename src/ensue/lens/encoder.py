"""What happens in the layers between features and head: gates and states over a text, weights of attention.

Seen through taps, in whatever layers there are; a new cell is seen as soon as it has them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.nn import SequenceLayer, tap_names, watch

MOST_ATTENTION = 2_048
"""Words of a text whose attention weights are held."""
SIGNED = {"candidate", "hidden"}
"""Of what may be negative, the mean size is shown."""
HIDDEN_FROM_VIEW = {"cell", "weights"}


class Trace(NamedTuple):
    """A layer's taps over the text: by name the mean over its units (T,), of signed ones that of their absolute values.

    `layer` counts from 1; `direction` is "left to right" or "right to left".
    """

    layer: int
    direction: str
    means: dict[str, NDArray[np.float64]]


class Attention(NamedTuple):
    """The weights (H, T, T) of one layer: row t is what position t looks at."""

    layer: int
    weights: NDArray[np.float32]


@torch.inference_mode()
def traces_of(layers: SequenceLayer, x: Tensor) -> list[Trace]:
    """Of every recurrent or window layer, in each direction, for a text with features (1, T, d)."""
    names = [name for name in tap_names(layers) if name.rpartition(".")[2] not in HIDDEN_FROM_VIEW]
    if not names:
        return []
    with watch(layers, *names) as seen:
        layers(x)
    means: dict[str, dict[str, NDArray[np.float64]]] = {}
    for name, tensors in seen.items():
        owner, _, tap = name.rpartition(".")
        means.setdefault(owner.removesuffix(".gates"), {})[tap] = _means(tap, tensors, backward="leftward" in name)
    places = _numbered(list(means))
    directions = {owner: "right to left" if "leftward" in owner else "left to right" for owner in means}
    return [Trace(places[owner], directions[owner], found) for owner, found in means.items()]


@torch.inference_mode()
def attention_of(layers: SequenceLayer, x: Tensor) -> list[Attention] | None:
    """Of every layer with attention; None where a text is longer than `MOST_ATTENTION`."""
    names = [name for name in tap_names(layers) if name.rpartition(".")[2] == "weights"]
    if not names:
        return []
    if x.shape[1] > MOST_ATTENTION:
        return None
    with watch(layers, *names) as seen:
        layers(x)
    return [Attention(layer, seen[name][0][0].float().cpu().numpy()) for layer, name in enumerate(names, start=1)]


def _means(tap: str, tensors: list[Tensor], *, backward: bool) -> NDArray[np.float64]:
    """A recurrent layer's taps are seen once a position with (1, d), others once with (1, T, d)."""
    values = tensors[0][0] if tensors[0].dim() == 3 else torch.cat(tensors)
    means = (values.abs() if tap in SIGNED else values).double().mean(-1).cpu().numpy()
    return means[::-1] if backward else means


def _numbered(owners: list[str]) -> dict[str, int]:
    """The layer's number for each of its parts: both directions of a layer have the same."""
    bases = [re.sub(r"(^|\.)(rightward|leftward)", "", owner) for owner in owners]
    numbers = {base: number for number, base in enumerate(dict.fromkeys(bases), start=1)}
    return {owner: numbers[base] for owner, base in zip(owners, bases, strict=True)}
