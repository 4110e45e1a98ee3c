"""Runs of Hugging Face's hub, by names such as `hf:NAME@REVISION`. Only files of the manifest are asked for."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ensue.errors import RunError
from ensue.hub import Repository
from ensue.parsing import read_bounded
from ensue.runs.schema import (
    MANIFEST,
    MAX_MANIFEST,
    DamagedError,
    Entry,
    ManifestContent,
    check_is_run,
    checked,
    file_names,
    parsed,
    told,
)

DEEPEST = 8
"""The most runs around a run, each of which reads the layers of the next one."""


def local_run(path: str | Path) -> Path:
    """The directory of a run, or of the files of `hf:NAME`. Raises RunError for a run that the hub has not whole."""
    if (repository := Repository.parse(path)) is None:
        return Path(path)
    folder = repository.file(MANIFEST, most=MAX_MANIFEST).parent
    _complete(repository._replace(revision=folder.name), folder, "")
    return folder


def found_run(path: str | Path) -> Path:
    """The directory of a run that is there; see `local_run`. Raises RunError for another directory."""
    check_is_run(found := local_run(path))
    return found


def refuse_hub(out: str | Path) -> None:
    """Raises RunError for a name of the hub in the place of a directory to write."""
    if repository := Repository.parse(out):
        raise RunError(f"{repository}: --out names a directory; `ensue push RUN NAME` uploads a run")


def _complete(repository: Repository, folder: Path, below: str) -> None:
    """Downloads what is missing of a run at a commit, and of the runs inside of it."""
    manifest = folder / below / MANIFEST
    try:
        with told(manifest):
            content: ManifestContent = checked(ManifestContent, parsed(read_bounded(manifest, MAX_MANIFEST)), manifest)
    except DamagedError as error:
        _forget(manifest)
        raise RunError(f"{repository}: {error}") from None
    if below.count("origins/") > DEEPEST:
        raise RunError(f"{repository}: runs inside of runs, more than {DEEPEST} deep")
    origins = [name for name in content.files if re.fullmatch(rf"origins/\d{{1,4}}/{MANIFEST}", name)]
    for name in [*sorted(file_names() & content.files.keys()), *origins]:
        _fetch(repository, folder, below + name, content.files[name])
    for name in origins:
        _complete(repository, folder, below + name.removesuffix(MANIFEST))


def _fetch(repository: Repository, folder: Path, name: str, entry: Entry) -> None:
    is_new = not (folder / name).exists()
    path = repository.file(name, size=entry.bytes)
    if not is_new:  # RunDirectory checks it, as it does the files of every run
        return
    with path.open("rb") as file:
        if path.stat().st_size == entry.bytes and hashlib.file_digest(file, "sha256").hexdigest() == entry.sha256:
            return
    _forget(path)
    raise RunError(f"{repository}: {name}: what came is not what {MANIFEST} says; it was not kept")


def _forget(path: Path) -> None:
    """Removes a file from the cache of huggingface_hub, where it may be a link to its content."""
    path.resolve().unlink()
    path.unlink(missing_ok=True)
