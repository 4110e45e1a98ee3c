"""From a word or a text to an `Inspection` of what lies near its vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ensue.inspection.inspection import TITLE, Inspection
from ensue.inspection.map_page import map_section
from ensue.inspection.markup import clipped
from ensue.inspection.neighbor_map import NeighborMap, map_vectors
from ensue.inspection.page import Section
from ensue.tasks.poolings import unit_vectors

if TYPE_CHECKING:
    from ensue.tasks.word_vectors.pipeline import WordVectorsPipeline


@dataclass(frozen=True)
class NeighborView:
    """The words of a text that have a vector, `own` in number, and behind them the `words` nearest to their mean.

    `similarities` (N,) are the cosines with this mean; `map` has the places of all words.
    """

    words: tuple[str, ...]
    own: int
    similarities: NDArray[np.float32]
    map: NeighborMap


def inspect_neighbors(pipeline: WordVectorsPipeline, text: str, count: int) -> Inspection:
    """What lies near a word, or the mean of a text's words. Raises EnsueError for a text without a vector."""
    near = [neighbor.word for neighbor in pipeline.neighbors(text, count)]
    own = list(dict.fromkeys(word for word in pipeline.words_of(text) if pipeline.table.find(word) is not None))
    words = (*own, *near)
    vectors = np.stack([pipeline.vector(word) for word in words])
    mean = unit_vectors(pipeline.embed([text]) if len(own) > 1 else vectors[:1])[0]
    view = NeighborView(words, len(own), unit_vectors(vectors) @ mean, map_vectors(vectors))
    return Inspection(clipped(text, TITLE), view, _facts(pipeline), _sections(view))


def _facts(pipeline: WordVectorsPipeline) -> dict[str, str]:
    count, size = pipeline.table.vectors.shape
    return {
        **({} if pipeline.run is None else {"run": Path(pipeline.run).name}),
        "model": pipeline.kind,
        "words": f"{count:,}",
        "numbers of a vector": f"{size:,}",
    }


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
