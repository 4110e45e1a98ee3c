"""The directory that a model is written to for other programs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from ensue.errors import DataError


@contextmanager
def new_directory(place: Path, names: Collection[str]) -> Iterator[None]:
    """Makes the directory, in which files of these `names` are then written.

    Raises DataError if it holds other files, and for what cannot be written.
    """
    try:
        if place.exists() and not place.is_dir():
            raise DataError("is a file; --out names a directory", place)
        found = sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []
        if other := next((name for name in found if name not in names), None):
            raise DataError(f"not empty (it holds {other}); choose another --out", place)
        place.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", place) from None
