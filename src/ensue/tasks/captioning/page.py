"""The sections of a page for a caption and its image."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.decode.search import BeamSearch
from ensue.inspection.drawing import matrix
from ensue.inspection.page import Section, cut
from ensue.inspection.pixels import data_address
from ensue.tasks.captioning.view import CaptionView
from ensue.tasks.sequence_to_sequence.page import MOST_OUTPUT, MOST_SOURCE, token_section
from ensue.tasks.sequence_to_sequence.search_page import search_sections

WIDE, TALL = 300, 220
"""The pixels that an image has room for."""
LEAST = 0.02
"""Weights below are not drawn."""
STRONGEST = 0.75


class Place(NamedTuple):
    """A place of the grid, in pixels of the image, with the weight, and its strength in the drawing."""

    x: float
    y: float
    width: float
    height: float
    weight: float
    strength: float


def caption_sections(view: CaptionView, search: BeamSearch) -> list[Section]:
    """All sections. `search` is how captions are found."""
    return [_looks(view), token_section(view), *search_sections(view, search)]


def _looks(view: CaptionView) -> Section:
    """The image once for each token, with where the decoder looks; of a series that is no image a matrix."""
    count = min(len(view.output), MOST_OUTPUT)
    weights, note = view.alignment, cut(len(view.output), count, "tokens of the caption")
    if view.image is None or view.grid is None:
        drawing = None
        if weights is not None:
            frames = [f"frame {number}" for number in range(min(weights.shape[1], MOST_SOURCE))]
            drawing = matrix(weights[:count, :MOST_SOURCE], view.output[:count], frames, name="attention", key="t")
        return Section("Where it looks", "tasks/captioning/frames.html", {"drawing": drawing, "note": note})
    rows, columns, _ = view.image.shape
    scale = min(WIDE / columns, TALL / rows)
    shown: dict[str, Any] = {
        "address": data_address(view.image if view.image.shape[2] in (1, 3) else view.image.mean(2, keepdims=True)),
        "size": (columns, rows),
        "shown_size": (columns * scale, rows * scale),
        "has_looks": weights is not None,
        "note": note,
        "tokens": [
            (
                view.output[place],
                None if view.gates is None else float(view.gates[place]),
                [] if weights is None else places(weights[place], view.grid, (rows, columns)),
            )
            for place in range(count)
        ],
    }
    return Section("Where it looks", "tasks/captioning/looks.html", shown)


def places(weights: NDArray[np.float32], grid: tuple[int, int], size: tuple[int, int]) -> list[Place]:
    """The places of a grid, each of which stands for a rectangle of the image, with their weights (L,)."""
    height, width = size[0] / grid[0], size[1] / grid[1]
    most = max(float(weights.max(initial=0.0)), 1e-9)
    return [
        Place(column * width, row * height, width, height, float(weight), STRONGEST * float(weight) / most)
        for (row, column), weight in np.ndenumerate(weights.reshape(grid))
        if weight >= LEAST
    ]
