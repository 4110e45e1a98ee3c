"""The files that are written beside a student's run, and what must not be lost by writing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ensue.data.files import locations_in
from ensue.errors import EnsueError
from ensue.runs.weights import write_text


def beside(out: Path, name: str) -> Path:
    """The file with data of a run, beside it. Raises EnsueError for a place without a name."""
    if not out.name:
        raise EnsueError(f"{out}: has no name; choose another --out")
    return out.with_name(f"{out.name}.{name}.jsonl")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes a file, and the folder that it is in."""
    content = "".join(lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, content)


def check_lost(given: Sequence[str], out: Path, files: Sequence[Path], *, overwrite: bool) -> None:
    """Raises EnsueError if the run or a file would be written over, or over or into what is read."""
    own = [path.resolve() for path in (out, *files)]
    for name in (name for location in filter(None, given) for name in locations_in(location)):
        path = Path(name).resolve()
        if any(one in (path, *path.parents) for one in own):
            raise EnsueError(f"{name}: would be written over; choose another --out")
        if path in own[0].parents:
            raise EnsueError(f"{name}: the run would be written into it; choose another --out")
    if not overwrite and (there := next((path for path in (out, *files) if path.exists()), None)):
        raise EnsueError(f"{there}: is there already; --overwrite replaces it")
