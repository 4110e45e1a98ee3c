"""Functions of exporters: notes about options that C lacks, and writing of the output directory."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from ensue.errors import DataError
from ensue.outputs import check_new, written
from ensue.tasks.contract.description import OptionValue


def missing_options(
    settings: Mapping[str, OptionValue], supported: Collection[str], without_note: Collection[str] = ()
) -> list[str]:
    """Return notes about the options of a search or of sampling that C lacks. Raises ValueError if one is in use."""
    missing = {name: setting for name, setting in settings.items() if name not in supported}
    for name, setting in missing.items():
        if setting.value != setting.default:
            raise ValueError(f"C has no option {name}, which is {setting.value}")
    return [f"C has no option {name}." for name in missing if name not in without_note]


def write_directory(
    directory: Path, contents: Mapping[str, bytes | Callable[[Path], object]], *, overwrite: bool = False
) -> None:
    """Write files to a directory.

    Args:
        directory: The directory.
        contents: For each file name, its content, or a function that writes the file to a path.
        overwrite: Whether files may be replaced that ensue did not write.

    Raises:
        DataError: The directory has other files, or cannot be written.
        EnsueError: A file would be replaced that ensue did not write.
    """
    names = {name.partition("/")[0] for name in contents}
    try:
        if directory.exists() and not directory.is_dir():
            raise DataError("is a file; --out names a directory", directory)
        existing = sorted(entry.name for entry in directory.iterdir()) if directory.is_dir() else []
        if other := next((name for name in existing if name not in names), None):
            raise DataError(f"not empty (found {other}); choose another --out", directory)
        for name in contents:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            check_new(directory / name, overwrite=overwrite)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", directory) from None
    for name, content in contents.items():
        with written(directory / name) as partial:
            partial.write_bytes(content) if isinstance(content, bytes) else content(partial)
