"""The page that `ensue inspect` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ensue.data.sources import whole_text
from ensue.errors import EnsueError, RunError
from ensue.notices import say_once
from ensue.runs.directory import RunDirectory
from ensue.runs.hub import found_run

NUMBERS = {1: "one text", 2: "two texts"}


def check_same_task(run: Path, beside: Path) -> None:
    """Raises EnsueError unless a run has the task of that at whose side it shall be shown."""
    one, other = (RunDirectory(found_run(path)).entry for path in (run, beside))
    if one is not other:
        raise RunError(f"{beside}: a {other.what}, and {run} is a {one.what}; expected runs of one task")


def write_inspection(
    pipelines: Sequence[Any],
    texts: Sequence[str],
    out: Path,
    *,
    target: str | None = None,
    overwrite: bool = False,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Path:
    """Inspects the texts of an input ("-": stdin), or what a given `target` is to the models, and writes the page, with
    the models side by side. `options` are those of the pipelines' `inspect`.

    Raises EnsueError if a model reads another number of texts.
    """
    reads_vectors = any(pipeline.reads_vectors for pipeline in pipelines)
    read = list(texts) if reads_vectors else [_text(text) for text in texts]
    for wanted in [pipeline.num_texts for pipeline in pipelines]:
        if len(read) != wanted:
            what = "one file" if reads_vectors else NUMBERS.get(wanted, f"{wanted} texts")
            raise EnsueError(f"the model reads {what}; found {len(read)}")
    given = () if target is None else (target,)
    first, *others = [pipeline.inspect_texts(*read, *given, **options) for pipeline in pipelines]
    path: Path = reduce(lambda one, other: one.beside(other), others, first).save(out, overwrite=overwrite)
    return path


def _text(given: str) -> str:
    """A text, that of an input ("-": stdin), or that of a file of this name, which is said."""
    if given == "-":
        return whole_text("-").strip()
    with suppress(OSError, ValueError):  # a text may be no name of a file
        if Path(given).is_file():
            say_once(f"inspect {given}", f"{given}: the text of this file is looked at")
            return whole_text(given).strip()
    return given
