"""The page that `ensue inspect` writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ensue.data.streams import whole_text
from ensue.errors import EnsueError


def write_inspection(pipeline: Any, texts: Sequence[str], out: Path, *, encoding: str = "utf-8") -> Path:
    """Inspects a text, or the two of a pair ("-": stdin), and writes the page to `out`.

    Raises EnsueError if the model reads another number of texts.
    """
    read = [whole_text("-", encoding).strip() if text == "-" else text for text in texts]
    wanted = pipeline.num_texts
    if len(read) != wanted:
        raise EnsueError(f"the model reads {'two texts' if wanted == 2 else 'one text'}; found {len(read)}")
    path: Path = pipeline.inspect(read[0] if wanted == 1 else (read[0], read[1])).save(out)
    return path
