"""From a word or a text to an `Inspection` of what lies near its vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ensue.inspection.map_page import NeighborMap, map_section, map_vectors
from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Inspection, Section
from ensue.tasks.vectors.text_vectors import Vectors, unit_vectors


@dataclass(frozen=True)
class NeighborView:
    """The words of a text that have a vector, `own` in number, and behind them the `words` nearest to their mean.

    `similarities` (N,) are the cosines with this mean; `map` has the places of all words.
    """

    words: tuple[str, ...]
    own: int
    similarities: NDArray[np.float32]
    map: NeighborMap


def inspect_neighbors(
    text: str, own: Sequence[str], near: Sequence[str], vectors: Vectors, mean: Vectors, facts: Mapping[str, str]
) -> Inspection:
    """A text with its words, `own`, and the nearest ones; `vectors` (N, d) of both, `mean` (d,) the text's."""
    mean = unit_vectors(mean)
    view = NeighborView((*own, *near), len(own), unit_vectors(vectors) @ mean, map_vectors(vectors))
    return Inspection(clipped(text, TITLE), view, facts, _sections(view))


def _sections(view: NeighborView) -> list[Section]:
    titles = [f"{word}: cosine {cosine:.4f}" for word, cosine in zip(view.words, view.similarities, strict=True)]
    what = "the word" if view.own == 1 else "the text’s words, by their mean"
    about = f"The nearest neighbors of {what}, with the highest cosine."
    ranked = list(zip(view.words, view.similarities.tolist(), strict=True))[view.own :]
    return [
        map_section(view.map, view.words, own=view.own, titles=titles, heading="Map of neighbors", about=about),
        Section("Neighbors", "tasks/word_vectors/neighbors.html", {"rows": _rows(ranked, view.own)}),
    ]


def _rows(ranked: Sequence[tuple[str, float]], own: int) -> list[tuple[int, str, float]]:
    """Each neighbor with its number on the map and its cosine."""
    return [(own + n, word, cosine) for n, (word, cosine) in enumerate(ranked)]
