"""From a captioner, an image and perhaps a caption to an `Inspection`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.arguments import check_type
from ensue.data.frames.series import Series
from ensue.errors import EnsueError
from ensue.inspection.inspection import TITLE, Inspection
from ensue.inspection.markup import clipped
from ensue.tasks.captioning.captioned import Captioned, check_caption
from ensue.tasks.captioning.page import caption_sections
from ensue.tasks.captioning.view import CaptionView
from ensue.tasks.sequence_to_sequence.inspection import searched
from ensue.tasks.sequence_to_sequence.output_view import output_parts
from ensue.tasks.sequence_to_sequence.symbols import shown
from ensue.tasks.sequence_to_sequence.writer import Writer


def inspect_caption(writer: Writer[Captioned], series: Series, caption: str | None = None) -> Inspection:
    """A captioner while it writes its caption for an image, or a given one."""
    target = writer.target
    sources = writer.sources([Captioned(series)])

    def symbol(id: int) -> str:
        return shown(target, id)

    if caption is None:
        search = searched(writer, sources, symbol)
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
