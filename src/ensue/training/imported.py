"""Functions that write a run directory for a model that another program has trained."""

import datetime
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ensue.errors import DataError, RunError
from ensue.extension import run_name
from ensue.outputs import check_outputs
from ensue.parsing import ParseError, check_access, parse_json, read_bounded
from ensue.recipe import Recipe, validate_recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.manifest import entry_of
from ensue.runs.reporter import usage_lines
from ensue.runs.weights import convert_disk_errors, partial_path, write_tensors, write_text
from ensue.tasks.contract.job import ModelParts
from ensue.training.runtime import Runtime
from ensue.version import VERSION

MAX_JSON_BYTES = 1 << 26
"""The maximum size of a JSON file of a published model. A large tokenizer has about 10 MB."""


@dataclass(frozen=True)
class Imported:
    """A model of another program, converted to the tensors and names of this package."""

    source: Path
    """The file or folder of the imported model."""
    files: tuple[Path, ...]
    """The files of the weights. config.json records their checksums."""
    kind: str
    """The kind of the published model, such as "bert"."""
    recipe: Recipe
    parts: ModelParts
    config: dict[str, Any]
    """The task's keys of config.json."""
    tensors: dict[str, Tensor]
    notes: list[str] = field(default_factory=list)
    """Notes for the user."""


def read_file(path: Path) -> bytes:
    """Return the content of a file. Raises DataError if the file is missing, unreadable or too large."""
    try:
        return read_bounded(path, MAX_JSON_BYTES)
    except FileNotFoundError:
        raise DataError("no such file", path) from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path) from None
    except ParseError as error:
        raise DataError(str(error), path) from None


def read_json_file(path: Path) -> Any:
    """Return the value of a JSON file. Raises DataError like `read_file`, and for invalid JSON."""
    try:
        return parse_json(read_file(path))
    except ParseError as error:
        raise DataError(str(error), path) from None


def build_recipe(document: dict[str, Any], source: Path) -> Recipe:
    """Return the recipe of an imported model. Raises RecipeError for invalid values."""
    about = {"about": f"imported from {run_name(source)}", "train": {"epochs": 1, **document.get("train", {})}}
    return validate_recipe(document | about, where=str(source))


def write_run(imported: Imported, out: str | Path, *, overwrite: bool = False) -> None:
    """Write the run directory. An existing run is removed after the new weights are written.

    Raises RunError if the directory has files of another program, or, without `overwrite`, a run.
    """
    check_outputs([imported.source, *imported.files], folders=[out])
    check_output_directory(out, overwrite=overwrite)
    # names and shapes must match the model, which is built without memory
    try:
        with torch.device("meta"):
            model = imported.parts.build(imported.recipe)
    except (ValueError, RuntimeError, MemoryError) as error:
        raise DataError(f"the model cannot be built: {error}", imported.source) from None
    for name, tensor in imported.tensors.items():
        if not tensor.is_floating_point():
            raise DataError(f"{name} is in {tensor.dtype}; expected floating-point numbers", imported.source)
    expected = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    shapes = {name: tuple(tensor.shape) for name, tensor in imported.tensors.items()}
    for name in sorted(expected.keys() | shapes.keys()):
        correct, shape = expected.get(name, "nothing"), shapes.get(name, "nothing")
        if correct != shape:
            raise DataError(f"{name}: expected {correct}, found {shape}", imported.source)
    try:
        origins = [
            {"file": path.name, **entry_of(path).model_dump(include={"bytes", "sha256"})} for path in imported.files
        ]
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", imported.source) from None
    if not origins:
        raise DataError("the model has no files of weights", imported.source)
    run = RunDirectory(out, is_output=True)
    with run.lock(), convert_disk_errors(run.path, lambda: f"{run.path}: the disk is full; free some space"):
        config = {
            **imported.config, "text": origins[0]["sha256"], "runtime": Runtime(device="cpu", threads=1).model_dump(),
            "imported": {"path": str(imported.source), "kind": imported.kind, "files": origins},
        }  # fmt: skip
        partial = partial_path(run.weights)
        write_tensors(partial, imported.tensors)
        run.clear(spare=partial)
        run.manifest.replace({run.weights.name: partial})
        run.create(imported.recipe, files=imported.parts.files(), config=config)
        write_text(run.path / "README.md", _card(run, imported, origins))


def check_output_directory(out: str | Path, *, overwrite: bool) -> None:
    """Raise RunError if the path is a file, a folder with files of another program, or, without `overwrite`, a run."""
    run = RunDirectory(out, is_output=True)
    if check_access(run.path).exists() and not run.path.is_dir():
        raise RunError(f"{run.path}: is a file; --out names a directory")
    if other := run.find_foreign_file():
        raise RunError(f"{run.path}: not empty and not a run directory (found {other}); choose another --out")
    if run.exists and not overwrite:
        raise RunError(f"{run.path}: there is a run already; --overwrite removes it")


def _card(run: RunDirectory, imported: Imported, origins: list[dict[str, Any]]) -> str:
    recipe = imported.recipe
    count = sum(tensor.numel() for tensor in imported.tensors.values())
    lines = [
        f"# {run.path.name}", "",
        f"A {recipe.what} ({recipe.describe()}, {count:,} parameters), imported from {imported.kind} with ensue "
        f"{VERSION} on {datetime.date.today().isoformat()}. The training is not part of this run.", "",
        "## Source", "",
        f"`{imported.source}`", "",
        *(f"- `{origin['file']}`, {origin['bytes']:,} bytes, sha256 {origin['sha256']}" for origin in origins), "",
        *(["## Notes", "", *(f"- {note}" for note in imported.notes), ""] if imported.notes else []),
        *usage_lines(run, recipe, imported.parts),
    ]  # fmt: skip
    return "\n".join(lines)
