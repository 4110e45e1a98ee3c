"""Addresses `hf:` of runs and data sets of the Hugging Face Hub."""

import hashlib
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ensue.errors import DataError, EnsueError, RunError, nearest, to_one_line
from ensue.extension import Scheme
from ensue.extensions.hub.repository import NOT_CACHED, PREFIX, Repository, stay_offline
from ensue.runs.schema import MANIFEST, MAX_MANIFEST_BYTES, DamagedError, FileEntry, file_names, read_manifest

MAX_DEPTH = 8
"""The maximum nesting of runs. The folder `origins` of a run has the runs on which it is based."""
_SAVED_DATASET_FILES = ("dataset_dict.json", "state.json")
"""The files that `save_to_disk` of `datasets` writes for several splits, or for a single split."""


class HubScheme(Scheme):
    """Addresses `hf:NAME@REVISION` of runs, and `hf:NAME,CONFIGURATION@SPLIT` of data sets."""

    how_to_write = "`ensue push RUN NAME` uploads a run"

    def local_run(self, address: str) -> Path:
        """Download the files of a run that are not cached, and return the folder of its commit in the cache."""
        repository = Repository.parse(address)
        folder = repository.file(MANIFEST, max_bytes=MAX_MANIFEST_BYTES).parent
        _download_run(repository._replace(revision=folder.name), folder, "")
        return folder

    def run_name(self, location: str) -> str:
        """Return the name of the repository, without its owner."""
        if location.startswith(PREFIX):
            return Repository.parse(location).name.rpartition("/")[2]
        folder = Path(location).resolve()
        repository = folder.parent.parent.name
        is_cached = folder.parent.name == "snapshots" and repository.startswith("models--")
        return repository.rpartition("--")[2] if is_cached else ""

    def load_dataset(self, address: str) -> tuple[Any, str]:
        """Return a split of a data set, and the name of the split. `hf:FOLDER` is a folder written by `save_to_disk`.

        Raises:
            DataError: The data set is not on this machine, is damaged, or lacks the configuration or split.
            EnsueError: The package `datasets` is not installed.
        """
        match = re.fullmatch(rf"{PREFIX}([^,@]+)(?:,([^,@]+))?(?:@([^,@]+))?", address)
        if match is None:
            raise DataError("expected an address such as hf:NAME, hf:NAME,CONFIGURATION or hf:NAME@SPLIT", address)
        name, configuration, split = match.groups()
        if find_spec("datasets") is None:
            raise EnsueError("reading data sets by name needs the package datasets: pip install 'ensue[datasets]'")
        stay_offline()
        import datasets  # noqa: PLC0415 (an extra)
        from pyarrow import ArrowException  # noqa: PLC0415

        datasets.disable_progress_bars()
        datasets.logging.set_verbosity_error()
        try:
            if not any((Path(name) / file).is_file() for file in _SAVED_DATASET_FILES):
                splits = datasets.load_dataset(name, configuration)
            elif configuration:
                raise DataError(f"a folder has no configurations; found {configuration}", address)
            else:
                splits = datasets.load_from_disk(name)
        except ConnectionError:
            raise DataError(NOT_CACHED, address) from None
        except (OSError, ValueError, KeyError, TypeError, ArrowException, datasets.exceptions.DatasetsError) as error:
            raise DataError(f"cannot be read: {to_one_line(str(error))}", address) from None
        if not isinstance(splits, dict):
            splits = {split: splits}
        split = split or ("train" if len(splits) > 1 else next(iter(splits)))
        if split not in splits:
            raise DataError(f'no split "{split}"{nearest(split, splits)}; it has {", ".join(splits)}', address)
        return splits[split], split


HUB = HubScheme()


def _download_run(repository: Repository, folder: Path, prefix: str) -> None:
    """Download the files of the run in the subfolder `prefix`, and its origins."""
    manifest = folder / prefix / MANIFEST
    try:
        content = read_manifest(manifest)
    except DamagedError as error:
        _remove_cached(manifest)
        raise RunError(f"{repository}: {error}") from None
    if prefix.count("origins/") > MAX_DEPTH:
        raise RunError(f"{repository}: runs nested more than {MAX_DEPTH} levels deep")
    origins = [name for name in content.files if re.fullmatch(rf"origins/\d{{1,4}}/{MANIFEST}", name)]
    for name in [*sorted(file_names() & content.files.keys()), *origins]:
        _download_file(repository, folder, prefix + name, content.files[name])
    for name in origins:
        _download_run(repository, folder, prefix + name.removesuffix(MANIFEST))


def _download_file(repository: Repository, folder: Path, name: str, entry: FileEntry) -> None:
    """Download a file, unless it is cached. Raise RunError unless a new file has the checksum of the manifest."""
    is_cached = (folder / name).exists()
    path = repository.file(name, size=entry.bytes)
    if is_cached:  # RunDirectory checks cached files, like the files of every run
        return
    with path.open("rb") as file:
        if path.stat().st_size == entry.bytes and hashlib.file_digest(file, "sha256").hexdigest() == entry.sha256:
            return
    _remove_cached(path)
    raise RunError(f"{repository}: {name}: the downloaded file differs from {MANIFEST}; it was deleted")


def _remove_cached(path: Path) -> None:
    """Remove a file of the cache: the file, and the link to the file in the folder of the commit."""
    path.resolve().unlink()
    path.unlink(missing_ok=True)
