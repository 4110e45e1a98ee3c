"""A model from elsewhere, and the run directory that it becomes."""

from __future__ import annotations

import datetime
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ensue.errors import DataError, RunError
from ensue.hub import run_name
from ensue.outputs import check_outputs
from ensue.parsing import ParseError, parse_json, read_bounded
from ensue.recipe import Recipe, validate_recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.hub import refuse_hub
from ensue.runs.manifest import entry_of
from ensue.runs.reporter import use
from ensue.runs.weights import disk_errors_told, partial_of, write_tensors, write_text
from ensue.tasks.contract.model import ModelParts
from ensue.training.runtime import Runtime
from ensue.version import VERSION

MAX_JSON = 1 << 26
"""The most bytes of a JSON file of a published model; a large tokenizer has some ten million."""


@dataclass(frozen=True)
class Imported:
    """A model of this package, made of files of another program."""

    source: Path
    """An imported model."""
    files: tuple[Path, ...]
    """The files of its weights, whose checksums the run keeps."""
    what: str
    """The kind of the published model, such as "bert"."""
    recipe: Recipe
    parts: ModelParts
    config: dict[str, Any]
    """The task's keys of config.json."""
    tensors: dict[str, Tensor]
    notes: list[str] = field(default_factory=list)
    """Notes for the user."""


def read_file(path: Path) -> bytes:
    """Return the content of a file without weights. Raises DataError if it is missing, unreadable or too large."""
    try:
        return read_bounded(path, MAX_JSON)
    except FileNotFoundError:
        raise DataError("no such file", path) from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path) from None
    except ParseError as error:
        raise DataError(str(error), path) from None


def read_json_file(path: Path) -> Any:
    """Return the value of a JSON file. Raises DataError like `read_file`, and if it is no JSON."""
    try:
        return parse_json(read_file(path))
    except ParseError as error:
        raise DataError(str(error), path) from None


def recipe_of(document: dict[str, Any], source: Path) -> Recipe:
    """The recipe of an imported model. Raises RecipeError for a value that a recipe cannot have."""
    about = {"about": f"imported from {run_name(source)}", "train": {"epochs": 1, **document.get("train", {})}}
    return validate_recipe(document | about, where=str(source))


def check_tensors(imported: Imported) -> None:
    """Raises DataError unless the tensors are those of the model, whose sizes are compared before anything is made."""
    try:
        with torch.device("meta"):
            model = imported.parts.build(imported.recipe)
    except (ValueError, RuntimeError, MemoryError) as error:
        raise DataError(f"no model can be made of it: {error}", imported.source) from None
    for name, tensor in imported.tensors.items():
        if not tensor.is_floating_point():
            raise DataError(f"{name} is in {tensor.dtype}; expected real numbers", imported.source)
    expected = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    found = {name: tuple(tensor.shape) for name, tensor in imported.tensors.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise DataError(
                f"{name} should be {expected.get(name, 'absent')}, is {found.get(name, 'absent')}", imported.source
            )


def write_run(imported: Imported, out: str | Path, *, overwrite: bool = False) -> None:
    """Write the run directory; a run that is there is removed when the new weights are written.

    Raises RunError for a run that is there, unless `overwrite`, and for other files in the directory.
    """
    check_outputs([imported.source, *imported.files], folders=[out])
    check_place(out, overwrite=overwrite)
    check_tensors(imported)
    try:
        origins = [
            {"file": path.name, **entry_of(path).model_dump(include={"bytes", "sha256"})} for path in imported.files
        ]
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", imported.source) from None
    if not origins:
        raise DataError("a model without files", imported.source)
    run = RunDirectory(out)
    with run.lock(), disk_errors_told(run.path, lambda: f"{run.path}: the disk is full; free some space"):
        config = {
            **imported.config,
            "text": origins[0]["sha256"],
            "runtime": Runtime(device="cpu", threads=1).model_dump(),
            "imported": {"path": str(imported.source), "kind": imported.what, "files": origins},
        }
        partial = partial_of(run.weights)
        write_tensors(partial, imported.tensors)
        run.clear(spare=partial)
        run.manifest.replace({run.weights.name: partial})
        run.create(imported.recipe, files=imported.parts.files(), config=config)
        write_text(run.path / "README.md", _card(run, imported, origins))


def check_place(out: str | Path, *, overwrite: bool) -> None:
    """Raise RunError for a place where no run can be written: a file, other files, or a run, unless `overwrite`."""
    refuse_hub(out)
    run = RunDirectory(out)
    if run.path.exists() and not run.path.is_dir():
        raise RunError(f"{run.path}: is a file; --out names a directory")
    if other := run.holds_other_things():
        raise RunError(f"{run.path}: not empty and not a run directory (it holds {other}); choose another --out")
    if run.exists and not overwrite:
        raise RunError(f"{run.path}: there is a run already; --overwrite removes it")


def _card(run: RunDirectory, imported: Imported, origins: list[dict[str, Any]]) -> str:
    recipe, path = imported.recipe, shlex.quote(str(run.path))
    count = sum(tensor.numel() for tensor in imported.tensors.values())
    lines = [
        f"# {run.path.name}", "",
        f"A {recipe.what} ({recipe.describe()}, {count:,} parameters), imported from {imported.what} with ensue "
        f"{VERSION} on {datetime.date.today().isoformat()}. It was not trained here.", "",
        "## Source", "",
        f"`{imported.source}`", "",
        *(f"- `{origin['file']}`, {origin['bytes']:,} bytes, sha256 {origin['sha256']}" for origin in origins), "",
        *(["## Notes", "", *(f"- {note}" for note in imported.notes), ""] if imported.notes else []),
        *use(run, imported.parts.commands(recipe, path), imported.parts.python(recipe)),
    ]  # fmt: skip
    return "\n".join(lines)
