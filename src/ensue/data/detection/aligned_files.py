"""Two files in one location, with a comma between them: their lines belong together."""

from __future__ import annotations

from glob import has_magic
from pathlib import Path

from ensue.data.files import expanded, readable
from ensue.errors import DataError


def aligned_paths(location: str) -> tuple[str, str] | None:
    """The two files that a location names with a comma between them; None for a location that is one thing.

    Commas may also be in the names: the location as a whole, and then a split into two files that are there, go first.
    """
    parts = location.split(",")
    if len(parts) == 1 or _is_there(location):
        return None
    splits = [(",".join(parts[:n]).strip(), ",".join(parts[n:]).strip()) for n in range(1, len(parts))]
    found = next((pair for pair in splits if all(map(_is_there, pair))), None)
    if found is None and len(parts) > 2 and not has_magic(location):
        raise DataError("expected two files with a comma between them, such as train.en,train.de", location)
    return found or (None if has_magic(location) else splits[0])


def _is_there(name: str) -> bool:
    with readable(name):
        return bool(name) and expanded(Path(name)).is_file()
