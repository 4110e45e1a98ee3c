"""The page that `ensue inspect` writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ensue.data.streams import whole_text
from ensue.errors import EnsueError

NUMBERS = {1: "one text", 2: "two texts"}


def write_inspection(
    pipeline: Any, texts: Sequence[str], out: Path, *, target: str | None = None, encoding: str = "utf-8"
) -> Path:
    """Inspects the texts of an input ("-": stdin), or what a given `target` is to the model, and writes the page.

    Raises EnsueError if the model reads another number of texts.
    """
    read = [whole_text("-", encoding).strip() if text == "-" else text for text in texts]
    wanted = pipeline.num_texts
    if len(read) != wanted:
        raise EnsueError(f"the model reads {NUMBERS.get(wanted, f'{wanted} texts')}; found {len(read)}")
    given = () if target is None else (target,)
    path: Path = pipeline.inspect_texts(*read, *given).save(out)
    return path
