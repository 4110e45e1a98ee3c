"""The runs from which a run begins. Each is copied into it, as `origins/0`, `origins/1`, ..., so nothing outside of the
run is needed.

A copy is a whole run directory, without what is for people or for going on: log, card, pictures, checkpoints. Its
manifest is a file in the manifest of the outer run, so a copy that was altered is noticed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensue.errors import RunError
from ensue.parsing import shown
from ensue.runs.directory import RunDirectory
from ensue.runs.manifest import Manifest, altered, entry_of
from ensue.runs.schema import MANIFEST, DamagedError, Entry, ManifestContent, file_names, told
from ensue.runs.weights import flush, partial_of


@dataclass(frozen=True)
class Origin:
    """A run from which another begins: the directory to read, its path in the recipe, the checksum of its weights."""

    run: RunDirectory
    path: str
    sha256: str

    @property
    def fingerprint(self) -> str:
        """A checksum of all its files, equal for the run and for its copies."""
        known = self.run.manifest.entries()
        files = {name: known[name].sha256 for name in sorted(file_names() & known.keys())}
        return hashlib.sha256(json.dumps(files).encode()).hexdigest()


def origins_for(paths: Sequence[str], run: RunDirectory | None) -> list[Origin]:
    """The origins in a run that is resumed, or at the recipe's `paths`. Raises RunError for no run or no weights."""
    if run is not None:
        return origins_in(run)
    return [_origin_at(path) for path in dict.fromkeys(paths)]


def origins_in(run: RunDirectory) -> list[Origin]:
    """The origins inside of a run. Raises RunError if one that its recipe names is missing or altered."""
    found, entries = [], run.config.get("origins", [])
    if missing := {*run.recipe.origins} - {entry["path"] for entry in entries}:
        raise DamagedError(
            f"{run.path / 'config.json'}: damaged: no origin {shown(min(missing), 400)}, which recipe.toml names"
        )
    for number, entry in enumerate(entries):
        copy = RunDirectory(run.origins / str(number))
        run.manifest.check(_manifest_of(number))
        found.append(Origin(copy, entry["path"], entry["sha256"]))
    return found


def copy_origins(run: RunDirectory, origins: Sequence[Origin]) -> list[dict[str, Any]]:
    """Copies origins into `run` before its config.json, and returns its entry. Raises RunError for altered ones."""
    for number, origin in enumerate(origins):
        copy = run.origins / str(number)
        if copy_run(origin.run, copy)[origin.run.weights.name].sha256 != origin.sha256:
            raise RunError(f"{origin.path}: has changed since this run began to read it; try again")
        list_origin(run, number)
    return [{"path": origin.path, "sha256": origin.sha256} for origin in origins]


def _origin_at(path: str) -> Origin:
    run = RunDirectory(path)
    try:
        assert run.entry  # raises unless there is a run, of a task that is known
        return Origin(run, path, run.weights_entry.sha256)
    except RunError as error:
        raise type(error)(f"{error}; an origin in the recipe is the directory of a trained run") from None


def _manifest_of(number: int) -> str:
    return f"origins/{number}/{MANIFEST}"


def list_origin(run: RunDirectory, number: int) -> None:
    """Puts the manifest of a copy, as it is now, into the manifest of the run."""
    partial = partial_of(run.origins / str(number) / MANIFEST)
    partial.with_name(MANIFEST).replace(partial)
    run.manifest.replace({_manifest_of(number): partial})


def copy_run(source: RunDirectory, target: Path) -> dict[str, Entry]:
    """Copies the files of a run that are read, and its own origins; returns the entries of the files."""
    target.mkdir(parents=True)
    known = source.manifest.entries()
    files = {name: known[name] for name in sorted(file_names() & known.keys())}
    for name, entry in files.items():
        with told(source.path / name):
            shutil.copyfile(source.path / name, target / name)
        if (found := entry_of(target / name)).sha256 != entry.sha256:
            raise altered(source.path / name, entry, found.bytes)
        flush(target / name)
    Manifest(target).write(ManifestContent(files=files))
    copy_origins(RunDirectory(target), origins_in(source))
    return files
