"""The page that `ensue inspect` writes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ensue.data.sources import read_stream
from ensue.errors import EnsueError, RunError
from ensue.notices import warn_once
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import existing_run

TEXT_COUNTS = {1: "one text", 2: "two texts"}


def check_same_task(run: Path, other: Path) -> None:
    """Raise EnsueError unless two runs have the same task."""
    task, other_task = (RunDirectory(existing_run(path)).entry for path in (run, other))
    if task is not other_task:
        raise RunError(f"{other}: a {other_task.what}, and {run} is a {task.what}; expected runs of the same task")


def write_inspection(
    pipelines: Sequence[Any], texts: Sequence[str], out: Path, *, target: str | None = None, overwrite: bool = False,
    options: Mapping[str, Any] = MappingProxyType({}), encoding: str | None = None,
) -> Path:  # fmt: skip
    """Write the page of one or more models side by side. Each of `texts` is a text, the name of a file, or "-" (stdin).

    Raises EnsueError if the number of `texts` differs from the number of texts that a model reads.
    """
    reads_vectors = any(pipeline.reads_vectors for pipeline in pipelines)
    contents = list(texts) if reads_vectors else [_read_text(text, pipelines[0], encoding) for text in texts]
    for count in [pipeline.num_texts for pipeline in pipelines]:
        if len(contents) != count:
            expected = "one file" if reads_vectors else TEXT_COUNTS.get(count, f"{count} texts")
            raise EnsueError(f"the model reads {expected}; found {len(contents)}")
    targets = () if target is None else (target,)
    if reads_vectors and encoding:
        options = {**options, "encoding": encoding}
    first, *others = [pipeline.inspect_texts(*contents, *targets, **options) for pipeline in pipelines]
    return reduce(lambda page, other: page.beside(other), others, first).save(out, overwrite=overwrite)


def _read_text(argument: str, pipeline: Any, encoding: str | None) -> str:
    """Return the text of stdin for "-", else the text of the file with this name (with a notice), else the argument."""
    if argument == "-":
        return read_stream("-", pipeline.reading("-", encoding)["encoding"]).strip()
    with suppress(OSError, ValueError):  # a text may be an invalid path
        if Path(argument).is_file():
            warn_once(f"inspect {argument}", f"{argument}: reading the text from this file")
            return read_stream(argument, pipeline.reading(argument, encoding)["encoding"]).strip()
    return argument
