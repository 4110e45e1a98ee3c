"""The files of an export: their directory, and the options that a target does not have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from ensue.errors import DataError
from ensue.outputs import check_new, written
from ensue.tasks.contract.description import Setting


def missing_options(
    settings: Mapping[str, Setting], target: str, known: Collection[str], refused: Collection[str] = ()
) -> list[str]:
    """Return a line about each option that a target does not have, except for those that are known to be missing.

    Args:
        settings: The options of a search or of sampling.
        target: The name of the target.
        known: The options that the target has.
        refused: The options that it does not have, and that need no line while they have no effect.

    Raises:
        ValueError: A missing option has another value than its default.
    """
    missing = {name: setting for name, setting in settings.items() if name not in known}
    for name, setting in missing.items():
        if setting.value != setting.default:
            raise ValueError(f"{target} has no option {name}, which is {setting.value}")
    return [f"{target} has no option {name}." for name in missing if name not in refused]


def write_directory(
    place: Path, contents: Mapping[str, bytes | Callable[[Path], object]], *, overwrite: bool = False
) -> None:
    """Writes files to a directory, by their names in it; a content may be a function that writes to a path.

    Raises DataError if it holds other files, and for what cannot be written, and EnsueError for a file that ensue did
    not write, unless `overwrite`.
    """
    names = {name.partition("/")[0] for name in contents}
    try:
        if place.exists() and not place.is_dir():
            raise DataError("is a file; --out names a directory", place)
        existing = sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []
        if other := next((name for name in existing if name not in names), None):
            raise DataError(f"not empty (it holds {other}); choose another --out", place)
        for name in contents:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            check_new(place / name, overwrite=overwrite)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", place) from None
    for name, content in contents.items():
        with written(place / name) as partial:
            partial.write_bytes(content) if isinstance(content, bytes) else content(partial)
