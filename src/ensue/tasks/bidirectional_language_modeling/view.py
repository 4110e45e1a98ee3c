"""The inside of a model that reads a text in both directions, in numbers: what each direction expected, its
units, the words that fit, and where the words lie.

`page.py` draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.inspection.encoder import over_text
from ensue.inspection.map_page import NeighborMap, map_vectors
from ensue.inspection.predictions import Predictions
from ensue.inspection.units import Units, correlations, named, unit_taps
from ensue.models.bidirectional import BidirectionalModel
from ensue.models.modules import device_of, evaluating
from ensue.nn import SequenceLayer, SoftmaxHead, watch
from ensue.tasks.bidirectional_language_modeling.words import WordReader
from ensue.tasks.texts.scoring import CALL_LOGITS
from ensue.tasks.vectors.word_table import Neighbor

MOST_WORDS = 1_000
"""The most words of a text that are looked at, in one piece."""
MOST_MAPPED = 60
"""The most words that are put on a map, and the most for which those that fit are looked for."""
WAYS = ("rightward", "leftward")


@dataclass(frozen=True)
class BidirectionalView:
    """A text of T words, as far as it was looked at; all of it has `length`.

    `rightward` are the predictions of each word from those to its left, `leftward` from those to its right; None for a
    model without probabilities. Units (T, d) are those of both directions, behind each word that the direction has
    read. `map` has the places of the first words, by their vectors in the last layer. `fits` are the words that fit
    best at each of these places, of a model of contexts.
    """

    words: tuple[str, ...]
    ids: NDArray[np.int64]
    length: int
    rightward: Predictions | None
    leftward: Predictions | None
    units: list[Units]
    correlations: list[NDArray[np.float64]]
    properties: dict[str, NDArray[np.float64]]
    map: NeighborMap
    fits: list[list[Neighbor]]


@torch.inference_mode()
def view_words(
    model: BidirectionalModel, reader: WordReader, words: Sequence[str], properties: dict[str, NDArray[np.float64]],
    *, head: SoftmaxHead | None, length: int, last: NDArray[np.float32], fits: list[list[Neighbor]],
) -> BidirectionalView:  # fmt: skip
    """The view of some words, with what they are (`properties`), and their vectors in the last layer (T, d)."""
    numbered, mask = reader.sentences([list(words)])
    device, ids = device_of(model), np.array(reader.ids(words), np.int64)
    both, *ways = (torch.from_numpy(part).to(device) for part in numbered)
    with evaluating(model), watch(model.rightward) as first, watch(model.leftward) as second:
        features, _ = model.read(both, *ways)
        known = model.beside(features[-1], torch.from_numpy(mask[:, 1:]).to(device))
        rightward, leftward = (None if head is None else _predictions(head, h[0], ids) for h in known)
    units = [*_units(model.rightward, first, "rightward"), *_units(model.leftward, second, "leftward")]
    return BidirectionalView(
        tuple(words),
        ids,
        length,
        rightward,
        leftward,
        units,
        correlations(units, properties),
        properties,
        map_vectors(last),
        fits,
    )


def _predictions(head: SoftmaxHead, h: Tensor, ids: NDArray[np.int64]) -> Predictions:
    size = max(1, CALL_LOGITS // head.vocabulary_size)
    starts = range(0, len(ids), size)
    return Predictions.joined([Predictions.of(head(h[at : at + size]), ids[at : at + size]) for at in starts])


def _units(layers: SequenceLayer, seen: dict[str, list[Tensor]], way: str) -> list[Units]:
    """The units of a direction, in the order of the words; what was seen at the boundary is left out."""
    step = 1 if way == WAYS[0] else -1
    values = {tap: over_text(seen[tap])[1:].float().cpu().numpy()[::step] for tap in unit_taps(layers)}
    return [Units(layer, f"{way} {kind}", of_tap) for layer, kind, of_tap in named(values)]
