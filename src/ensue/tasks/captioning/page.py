"""From a captioner, an image and perhaps a caption to a page about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.arguments import check_type
from ensue.data.frames.series import Series
from ensue.decode.search import BeamSearch
from ensue.errors import EnsueError
from ensue.inspection.drawing import matrix
from ensue.inspection.frame_drawing import data_address
from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Inspection, Section, cut
from ensue.tasks.captioning.model import Captioned, check_caption
from ensue.tasks.sequence_to_sequence.outputs import shown
from ensue.tasks.sequence_to_sequence.page import MOST_OUTPUT, MOST_SOURCE, recorded_search, token_section
from ensue.tasks.sequence_to_sequence.search_page import search_sections
from ensue.tasks.sequence_to_sequence.view import OutputView, output_parts
from ensue.tasks.sequence_to_sequence.writer import Writer


@dataclass(frozen=True)
class CaptionView(OutputView):
    """A caption of a series. The columns of its alignments are the places of `grid`, row by row, or the frames."""

    series: str
    image: NDArray[np.float32] | None
    """(rows, columns, colors); None for a series that is no image."""
    grid: tuple[int, int] | None
    """The rows and columns of the grid."""
    gates: NDArray[np.float64] | None
    """β (T,); None for a decoder without a gate."""


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


def inspect_caption(writer: Writer[Captioned], series: Series, caption: str | None = None) -> Inspection:
    """A captioner while it writes its caption for an image, or a given one."""
    target = writer.target
    sources = writer.sources([Captioned(series)])

    def symbol(id: int) -> str:
        return shown(target, id)

    if caption is None:
        search = recorded_search(writer, sources, symbol)
        best = search.hypotheses[0]
        ids = [*best.ids, *([target.end_id] if best.is_complete else [])]
        text = target.decode(best.ids)
    else:
        check_type("the target", caption, str, "a string")
        search, text, ids = None, caption, [*target.encode(caption).tolist(), target.end_id]
        check_caption(series, len(ids), writer.recipe)
    if not ids:
        raise EnsueError("there is nothing to look into: the caption has no tokens")
    parts, seen = output_parts(writer.models, sources, ids, begin_id=target.begin_id, symbol=symbol)
    view = CaptionView(
        **parts, text=text, search=search, series=series.name, gates=seen.gates, **_picture(writer, series)
    )
    return Inspection(clipped(series.name, TITLE), view, _facts(writer, view), caption_sections(view, writer.search))


def _picture(writer: Writer[Captioned], series: Series) -> dict[str, Any]:
    """The image (rows, columns, colors) and its grid; None for a series that is none."""
    if not writer.recipe.reads_images:
        return {"image": None, "grid": None}
    grid: Any = writer.model.grid
    image: NDArray[np.float32] = series.frames.reshape(*series.frames.shape[:1], -1, writer.recipe.grid.colors)
    return {"image": image, "grid": grid.grid}


def _facts(writer: Writer[Captioned], view: CaptionView) -> dict[str, str]:
    """The facts at the top of the page."""
    return {
        **writer.facts(writer.recipe.describe()),
        "search": "none, the caption was given" if view.search is None else writer.protocol_of_search(),
        "caption": view.text,
    }
