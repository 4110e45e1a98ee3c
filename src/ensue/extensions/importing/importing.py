"""From files of other programs to a run: which kind of file it is, and who reads it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ensue.arguments import check_path
from ensue.errors import DataError, MissingFileError
from ensue.extension import loadable_entries
from ensue.extensions.importing.directories import import_directory
from ensue.extensions.importing.static_vectors import import_vectors
from ensue.extensions.importing.weight_files import FILE, INDEX, check_contained, shard_names
from ensue.hub import Repository
from ensue.outputs import check_outputs
from ensue.training.device import process_restored
from ensue.training.imported import MAX_JSON, Imported, check_place, write_run

SMALL = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt",
    "modules.json", "1_Pooling/config.json", "generation_config.json", "source.spm", "target.spm",
)  # fmt: skip
"""The files of a published model beside config.json and weights, each of which may be missing."""
MOST_BYTES = 1 << 40
"""The most bytes of a file of weights."""


@process_restored()
def import_run(path: str | Path, out: str | Path, *, overwrite: bool = False) -> Imported:
    """Makes the run directory `out` of a published model.

    It is a directory of transformers or sentence-transformers, also as `hf:NAME` of the hub, an ELMo (hdf5 with
    options.json), or a file of word vectors (fastText's model, word2vec's text and binary, GloVe's text).

    Raises DataError for files that are missing, damaged or of another kind, and RunError for a place that is taken.
    """
    check_path("the model", path)
    check_path("out", out)
    check_outputs([path], folders=[out])
    check_place(out, overwrite=overwrite)
    repository = Repository.parse(path)
    imported = read_model(Path(path)) if repository is None else _of_hub(repository)
    write_run(imported, out, overwrite=overwrite)
    return imported


def read_model(path: Path) -> Imported:
    """The model of these files."""
    if not path.exists():
        raise DataError("no such file or directory", path)
    if path.is_dir():
        check_contained(path)
    for read in loadable_entries("importer", Callable).values():  # type: ignore[arg-type]  # isinstance takes it
        imported: Imported | None = read(path)
        if imported is not None:
            return imported
    if path.is_file():
        return _file(path)
    if not (path / "config.json").is_file():
        raise DataError("no config.json: not a directory of a published model", path)
    return import_directory(path)


def _of_hub(repository: Repository) -> Imported:
    """The model of a repository at one commit. The weights come last: where they are kept, the others are."""
    folder = repository.file("config.json", most=MAX_JSON).parent
    pinned = repository._replace(revision=folder.name)
    for name in SMALL:
        with suppress(MissingFileError):
            pinned.file(name, most=MAX_JSON)
    try:
        names = shard_names(pinned.file(INDEX, most=MAX_JSON))
    except MissingFileError:
        names = [FILE]
    for name in names:
        pinned.file(name, most=MOST_BYTES)
    check_contained(folder)
    return replace(import_directory(folder), source=Path(str(pinned)))


def _file(path: Path) -> Imported:
    if path.suffix == ".safetensors":
        raise DataError("weights alone; expected the directory with their config.json", path)
    try:
        return import_vectors(path)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path) from None
