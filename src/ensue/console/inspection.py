"""A text of the command line looked into: the page that `ensue inspect` writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ensue.console.streams import stream_text
from ensue.errors import EnsueError

if TYPE_CHECKING:
    from ensue.pipeline import ClassificationPipeline, LabelingPipeline


def write_inspection(
    pipeline: LabelingPipeline | ClassificationPipeline, texts: Sequence[str], out: Path, *, encoding: str = "utf-8"
) -> Path:
    """Inspect one text, or both of a pair ("-": stdin), and write the page to `out`.

    EnsueError if the model reads another number of texts.
    """
    read = ["".join(stream_text("-", encoding)).strip() if text == "-" else text for text in texts]
    wanted = 2 if pipeline.recipe.task == "classification" and pipeline.model.pair else 1
    if len(read) != wanted:
        raise EnsueError(f"the model reads {'two texts' if wanted == 2 else 'one text'}; found {len(read)}")
    return pipeline.inspect(read[0] if wanted == 1 else (read[0], read[1])).save(out)
