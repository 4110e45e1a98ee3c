"""The function `import_run`, which converts a published model to a run directory."""

from collections.abc import Callable
from pathlib import Path

from ensue.errors import DataError, check_path
from ensue.extension import is_address, loadable_entries, unknown_scheme
from ensue.extensions.importing.directories import import_directory
from ensue.extensions.importing.static_vectors import import_vectors
from ensue.extensions.importing.weight_files import check_contained
from ensue.outputs import check_outputs
from ensue.training.device import restore_process
from ensue.training.imported import Imported, check_output_directory, write_run


@restore_process()
def import_run(path: str | Path, out: str | Path, *, overwrite: bool = False) -> Imported:
    """Write a published model as a run directory.

    Args:
        path: A directory of transformers or sentence-transformers, or its address, such as `hf:NAME`; the files of an
            ELMo model (hdf5 with options.json); or word vectors (fastText, word2vec, GloVe).
        out: The run directory to write.
        overwrite: Whether an existing run at `out` is replaced.

    Returns:
        The imported model, with notes for the user.

    Raises:
        DataError: Files are missing, damaged or unsupported.
        RunError: `out` exists, and `overwrite` is false.
    """
    check_path("the model", path)
    check_path("out", out)
    check_outputs([path], folders=[out])
    check_output_directory(out, overwrite=overwrite)
    imported = read_model(Path(path))
    write_run(imported, out, overwrite=overwrite)
    return imported


def read_model(path: Path) -> Imported:
    """Read a published model. Raises DataError for missing, damaged or unsupported files."""
    if not path.exists() and not is_address(path):
        raise DataError(f"no such file or directory{unknown_scheme(path)}", path)
    if path.is_dir():
        check_contained(path)
    for read in loadable_entries("importer", Callable).values():  # type: ignore[arg-type]  # isinstance accepts it
        imported: Imported | None = read(path)
        if imported is not None:
            return imported
    if not path.is_file():
        if not (path / "config.json").is_file():
            raise DataError("no config.json: not a directory of a published model", path)
        return import_directory(path)
    if path.suffix == ".safetensors":
        raise DataError("weights without config.json; expected the directory of the model", path)
    try:
        return import_vectors(path)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path) from None
