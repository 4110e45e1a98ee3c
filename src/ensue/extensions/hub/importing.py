"""Import of published models from the Hugging Face Hub."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ensue.errors import MissingFileError
from ensue.extensions.hub.repository import PREFIX, Repository
from ensue.extensions.importing.directories import import_directory
from ensue.extensions.importing.weight_files import FILE, INDEX, check_contained, shard_names
from ensue.training.imported import MAX_JSON_BYTES, Imported

OPTIONAL_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt",
    "modules.json", "1_Pooling/config.json", "generation_config.json", "source.spm", "target.spm",
)  # fmt: skip
"""The files that a published model may have besides config.json and its weights."""
MAX_WEIGHT_BYTES = 1 << 40


def import_repository(path: Path) -> Imported | None:
    """Download and import the model of an address `hf:`; return None for another path.

    All files are of one commit. Weights are downloaded last, so a cache that has the weights has all other files.
    """
    if not path.as_posix().startswith(PREFIX):
        return None
    repository = Repository.parse(path.as_posix())
    folder = repository.file("config.json", max_bytes=MAX_JSON_BYTES).parent
    pinned = repository._replace(revision=folder.name)
    for name in OPTIONAL_FILES:
        with suppress(MissingFileError):
            pinned.file(name, max_bytes=MAX_JSON_BYTES)
    try:
        names = shard_names(pinned.file(INDEX, max_bytes=MAX_JSON_BYTES))
    except MissingFileError:
        names = [FILE]
    for name in names:
        pinned.file(name, max_bytes=MAX_WEIGHT_BYTES)
    check_contained(folder)
    return replace(import_directory(folder), source=Path(str(pinned)))
