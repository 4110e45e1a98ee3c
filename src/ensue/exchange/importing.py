"""From files of other programs to a run: which kind of file it is, and who reads it."""

from __future__ import annotations

from pathlib import Path

from ensue.arguments import check_path
from ensue.errors import DataError
from ensue.exchange.directories import import_directory
from ensue.exchange.elmo import import_elmo, weights_of
from ensue.exchange.imported import Imported, write_run
from ensue.exchange.static_vectors import import_vectors


def import_run(path: str | Path, out: str | Path, *, overwrite: bool = False) -> Imported:
    """Makes the run directory `out` of a published model.

    It is a directory of transformers or sentence-transformers, an ELMo (hdf5 with options.json), or a file of word
    vectors (fastText's model, word2vec's text and binary, GloVe's text).

    Raises DataError for files that are missing, damaged or of another kind, and RunError for a place that is taken.
    """
    check_path("the model", path)
    check_path("out", out)
    imported = read_model(Path(path))
    write_run(imported, out, overwrite=overwrite)
    return imported


def read_model(path: Path) -> Imported:
    """The model of these files."""
    if not path.exists():
        raise DataError("no such file or directory", path)
    if weights := weights_of(path):
        return import_elmo(path, weights)
    if path.is_file():
        return _file(path)
    if not (path / "config.json").is_file():
        raise DataError("no config.json: not a directory of a published model", path)
    return import_directory(path)


def _file(path: Path) -> Imported:
    if path.suffix == ".safetensors":
        raise DataError("weights alone; expected the directory with their config.json", path)
    try:
        return import_vectors(path)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path) from None
