"""A location of two aligned files, with a comma between them."""

from __future__ import annotations

from glob import has_magic
from pathlib import Path

from ensue.data.files import expanded, readable
from ensue.data.row_files import DatasetName
from ensue.errors import DataError


def aligned_paths(location: str) -> tuple[str, str] | None:
    """The two files of a location with a comma between them; None for a location of another kind.

    Names may have commas: if the whole is a file, it is one file; else two existing files are preferred.
    """
    parts = location.split(",")
    if len(parts) == 1 or _is_there(location) or DatasetName.parse(location):
        return None
    splits = [(",".join(parts[:n]).strip(), ",".join(parts[n:]).strip()) for n in range(1, len(parts))]
    found = next((pair for pair in splits if all(map(_is_there, pair))), None)
    if found is None and len(parts) > 2 and not has_magic(location):
        raise DataError("expected two files with a comma between them, such as train.en,train.de", location)
    return found or (None if has_magic(location) else splits[0])


def _is_there(name: str) -> bool:
    with readable(name):
        return bool(name) and expanded(Path(name)).is_file()
