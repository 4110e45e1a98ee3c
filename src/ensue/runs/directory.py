"""The run directory: all files of a trained model.

    recipe.toml        the recipe with all defaults             metrics.jsonl    one line per report
    config.json        model, task and format_version           README.md        model card
    model.safetensors  best weights                             checkpoints/     step-N/ (checkpoint.py)
    manifest.json      checksums of all files that are read     curve.png        learning curve
    origins/N/         copies of runs with initial weights

Tasks add files, such as tokenizer.json. Loading a file never runs code from the file. One process at a time writes.

Origins are copied to `origins/0`, `origins/1`, ..., so that the run needs no files outside of its directory. A copy has
the files of a run except log, card, pictures and checkpoints. The manifest of the run has the checksum of each copy's
manifest, so that alterations are detected.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from filelock import FileLock, Timeout

from ensue.data.detection.locations import aligned_paths
from ensue.data.files import Data, as_location, expanduser, files_of, join_locations, locations_in
from ensue.data.sources import digest_of, digest_of_each
from ensue.errors import EnsueError, RecipeError, RunError, quote
from ensue.extension import all_requirements, local_run, output_directory
from ensue.notices import warn_once
from ensue.parsing import ParseError, parse_json, parse_toml, read_bounded
from ensue.recipe import Recipe, read_recipe, translate_former_values, validate_recipe
from ensue.runs import schema
from ensue.runs.checkpoint import link_or_copy
from ensue.runs.manifest import Manifest, altered_error, entry_of
from ensue.runs.weights import flush, in_float32, load_parameters, partial_path, read_tensors
from ensue.tasks import TaskEntry, has_task, task_entry
from ensue.version import VERSION

Parsed = TypeVar("Parsed")
MAX_CONFIG_BYTES = 1 << 20


class RunDirectory:
    """The files of a run, read at first use. Reading a missing or damaged file raises RunError.

    Args:
        path: The path of the directory, the name of an installed model, or an address such as `hf:NAME`.
        is_output: Whether the run will be written. Then only a path is allowed.
    """

    def __init__(self, path: str | Path, *, is_output: bool = False) -> None:
        self.path, self.argument = output_directory(path) if is_output else local_run(path), str(path)
        self.manifest, self.checkpoints = Manifest(self.path), self.path / "checkpoints"
        self.origins = self.path / "origins"
        """The folder with the runs whose weights initialize this run."""
        self.weights, self.metrics = self.path / "model.safetensors", self.path / "metrics.jsonl"
        """The best weights, and the reports."""

    @property
    def exists(self) -> bool:
        """Whether the directory contains a run."""
        return (self.path / "config.json").is_file()

    def find_foreign_file(self) -> str:
        """Return the name of a file in the directory that does not belong to a run, or ""."""
        if self.exists:
            with suppress(ParseError, OSError):  # a damaged config.json may belong to a run
                config = parse_json(read_bounded(self.path / "config.json", MAX_CONFIG_BYTES))
                return "" if isinstance(config, dict) and "format_version" in config else "config.json"
            return ""
        names = sorted(entry.name for entry in self.path.iterdir()) if self.path.is_dir() else []
        run_names = {*schema.file_names(), "checkpoints", "origins", "tensorboard"} if ".lock" in names else set()
        return next((name for name in names if name not in run_names | {".lock"} and not name.endswith(".partial")), "")

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of `config.json`."""
        path = self.path / "config.json"
        schema.check_is_run(self.path)
        with schema.convert_read_errors(path):
            config = schema.parse_strictly(read_bounded(path, MAX_CONFIG_BYTES))
        version = config.get("format_version") if isinstance(config, dict) else None
        if type(version) is not int:
            raise schema.DamagedError(f"{path}: damaged: no format_version")
        if version != schema.FORMAT_VERSION:
            than = "newer" if version > schema.FORMAT_VERSION else "older"
            raise RunError(
                f"{path}: format_version {quote(version)} is {than} than {schema.FORMAT_VERSION}, which ensue "
                f"{VERSION} reads; written by ensue {quote(config.get('ensue'))}"
            )
        self.manifest.check("config.json")
        task = config.get("task")
        schema.validate_content(task_entry(task).parts_class.config if has_task(task) else schema.Config, config, path)
        return cast("dict[str, Any]", config)

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe with all defaults."""
        content = self.manifest.read("recipe.toml")
        with schema.convert_read_errors(self.path / "recipe.toml"):
            document = translate_former_values(parse_toml(content))
            return validate_recipe(document, where=str(self.path / "recipe.toml"), is_trained=True)

    @cached_property
    def entry(self) -> TaskEntry:
        """The task of the run."""
        task = self.config["task"]
        if not has_task(task):
            with schema.convert_read_errors(self.path / "recipe.toml"):
                needs = parse_toml(self.manifest.read("recipe.toml")).get("needs")
            try:
                all_requirements(needs if isinstance(needs, list) else [])
            except RecipeError as error:
                raise RunError(f"{self.path}: {error}") from None
            raise RunError(f"{self.path}: needs the task {quote(task)}, which no installed extension has")
        if task != self.recipe.task:
            raise RunError(f"{self.path}: damaged: config.json has the task {task}, recipe.toml {self.recipe.task}")
        return task_entry(task)

    @property
    def card(self) -> str:
        """The text of the model card, or "". A link out of the folder is not read: it could lead to a private file."""
        path, root = self.path / "README.md", Path(os.path.realpath(self.path))
        root = root.parents[1] if root.parent.name == "snapshots" else root  # links of the cache of the hub
        if not path.is_file() or not Path(os.path.realpath(path)).is_relative_to(root):
            return ""
        with schema.convert_read_errors(path):
            return read_bounded(path, schema.MAX_MANIFEST_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")

    @cached_property
    def parts(self) -> Any:
        """The `ModelParts` of the task. The model is built from the recipe and these parts."""
        return self.entry.parts_class.read(self)

    def read_json(self, name: str, parse: Callable[[Any], Parsed]) -> Parsed:
        """Return the parsed content of a JSON file. Raises DamagedError if `parse` raises ValueError."""
        path = self.path / name
        with schema.convert_read_errors(path):
            content = schema.parse_strictly(self.manifest.read(name))
        try:
            return parse(content)
        except ValueError as error:
            raise schema.DamagedError(f"{path}: damaged: {error}") from None

    @property
    def weights_entry(self) -> schema.FileEntry:
        """The manifest entry of the best weights. Raises RunError before the first validation."""
        entry = self.manifest.entries().get(self.weights.name)
        if entry is None and self.weights.exists():
            raise schema.DamagedError(
                f"{self.weights}: not a file of this run: {self.manifest.path.name} does not list it"
            )
        if entry is None:
            raise RunError(f"{self.weights}: no such file: the run was stopped before its first validation")
        return entry

    def model(self, device: torch.device) -> Any:
        """Return the model with its best weights, in evaluation mode."""
        assert self.weights_entry  # raises RunError without weights
        try:
            with in_float32(), torch.device("cpu"):
                model = self.parts.build(self.recipe)
        except (ValueError, RuntimeError, MemoryError) as error:
            recipe = self.path / "recipe.toml"
            raise schema.DamagedError(f"{recipe}: the model cannot be built: {quote(str(error), 200)[1:-1]}") from None
        load_parameters(model, read_tensors(self.manifest.check(self.weights.name)), self.weights)
        return model.to(device).eval()

    def create(self, recipe: Recipe, *, files: Mapping[str, Any], config: dict[str, Any]) -> None:
        """Write the files that are known before the first step. config.json is written last, since it marks a run."""
        content = {"format_version": schema.FORMAT_VERSION, "ensue": VERSION, "task": recipe.task, **config}
        self.write({**files, "recipe.toml": recipe.to_toml(), "config.json": json.dumps(content, indent=2) + "\n"})

    def write(self, contents: Mapping[str, Any]) -> None:
        """Replace files and their manifest entries. Contents that are not strings are written as JSON."""
        files = {
            name: content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) + "\n"
            for name, content in contents.items()
        }
        partials = {name: partial_path(self.path / name) for name in files}
        try:
            for name, partial in partials.items():
                partial.write_text(files[name], encoding="utf-8", errors="backslashreplace")
                flush(partial)
            self.manifest.replace(partials)
        finally:
            for partial in partials.values():
                partial.unlink(missing_ok=True)
        self._clear_cached_properties()

    def publish(self, weights: Path) -> None:
        """Copy `weights` to the file of the best weights, unless that file has the same content."""
        if self.manifest.holds(self.weights.name, entry_of(weights)):
            return
        partial = partial_path(self.weights)
        link_or_copy(weights, partial)
        self.manifest.replace({self.weights.name: partial})

    def clear(self, spare: Path | None = None) -> None:
        """Remove the files of the run except `spare`. config.json is removed first, since it marks a run."""
        (self.path / "config.json").unlink(missing_ok=True)
        for path in (self.path / name for name in schema.file_names()):
            path.unlink(missing_ok=True)
            if partial_path(path) != spare:
                partial_path(path).unlink(missing_ok=True)  # a process may have been killed while writing
        for folder in (self.checkpoints, self.origins, self.path / "tensorboard"):
            shutil.rmtree(folder, ignore_errors=True)
        self._clear_cached_properties()

    def _clear_cached_properties(self) -> None:
        for name in ("config", "recipe", "entry", "parts"):
            self.__dict__.pop(name, None)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the directory for this process during a `with` block. The lock ends with the process at the latest."""
        lock = FileLock(self.path / ".lock")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            raise RunError(f"{self.path}: another process is training in this run directory") from None
        except (OSError, NotImplementedError) as error:  # NotImplementedError: a file system without locks
            raise RunError(f"{self.path}: cannot be written ({getattr(error, 'strerror', error)})") from None
        try:
            yield
        finally:
            lock.release()


@dataclass(frozen=True)
class Origin:
    """A run that provides initial weights or layers: its directory, path in the recipe, and checksum of weights."""

    run: RunDirectory
    path: str
    sha256: str

    @property
    def fingerprint(self) -> str:
        """A checksum of all files of the origin, equal for the run and for its copies."""
        files = {name: entry.sha256 for name, entry in _list_files(self.run).items()}
        return hashlib.sha256(json.dumps(files).encode()).hexdigest()

    def new_locations(self, train: str) -> str:
        """Return the locations in `train` that the origin was not trained on; `train` if there are none."""
        old = locations_in(self.run.recipe.data.train)
        return as_location([name for name in locations_in(train) if name not in old]) or train


def continuing_recipe(
    path: str | Path, recipe: str | Path | Recipe | None = None, settings: Sequence[str] | Mapping[str, Any] = (),
    **paths: Data | None,
) -> Recipe:  # fmt: skip
    """Return a recipe that begins with the weights of a run. The default is the recipe of the run.

    With `tuning.rehearse`, which is the default, a tagger of spans also predicts the old labels in the new data, and
    other models also read the training data of the run.
    """
    run = RunDirectory(path)
    schema.check_is_run(run.path)
    old, begin = run.recipe.data.train, run.recipe.continuing(str(path))
    if not begin:
        expected = "a tagger, a classifier, a translator or a language model"
        raise RecipeError(f"--from {path}: a {run.entry.what} cannot be trained further; expected {expected}")
    keys = {"train", "valid", "test", "teacher"} & type(run.recipe.data).model_fields.keys()
    combined = read_recipe(recipe or run.recipe, dict.fromkeys((f"data.{key}" for key in keys), "") | begin)
    combined = read_recipe(combined, settings, **paths)
    adds_spans = combined.rehearses and not combined.is_gradient_free
    if (rehearses := combined.tuning.rehearse) and adds_spans and run.parts.labels.has_spans:
        return combined
    problem = _explain_no_rehearsal(run, combined.data.train) if rehearses else "tuning.rehearse is off"
    data = f"the training data of {path}, {join_locations(old)}, are"
    if not problem:
        combined = read_recipe(combined, train=[*locations_in(old), *locations_in(combined.data.train)])
        warn_once(f"again {path}", f"{data} read again; --set tuning.rehearse=false leaves them out")
    elif combined.data.train and problem != NEW_HAS_OLD:
        warn_once(f"forgets {path}", f"{data} not read again and may be forgotten ({problem})")
    return read_recipe(combined, {"tuning.rehearse": False}) if rehearses else combined


NEW_HAS_OLD = "the new data have the old data"


def _find_files(location: str) -> tuple[tuple[Path, ...], set[str]]:
    """Return the files at a location, and the set of their suffixes; for aligned files the set {"aligned"}."""
    if pairs := aligned_paths(location):
        return tuple(expanduser(name) for pair in pairs for name in pair), {"aligned"}
    return (paths := files_of(location)), {path.suffix for path in paths}


def _explain_no_rehearsal(run: RunDirectory, new: str) -> str:
    """Return the reason for not reading the training data of a run again in addition to the new data; "" if none."""
    if not new:
        return NEW_HAS_OLD
    try:
        (new_paths, new_format), (old_paths, old_format) = _find_files(new), _find_files(run.recipe.data.train)
        digests = {digest_of(old_paths), digest_of_each(old_paths)}
    except (EnsueError, OSError):
        return "a file is missing or cannot be read"
    new_files, old_files = ({path.resolve() for path in paths} for paths in (new_paths, old_paths))
    if new_files & old_files:
        return NEW_HAS_OLD if old_files <= new_files else "the new data have some of these files"
    if new_format != old_format:
        remedy = f"save one of them in the other format ({', '.join(sorted(old_format))})"
        return f"the new data have another format; {remedy}"
    digest = run.config["text"].partition("+")[0]  # on another machine the path may name another file
    return "" if digest in digests else "the content of the file has changed"


def origins_for(paths: Sequence[str], run: RunDirectory | None) -> list[Origin]:
    """Return the origins of a resumed run, or the origins at `paths`. Raises RunError for an origin without weights."""
    return [_read_origin(path) for path in dict.fromkeys(paths)] if run is None else origins_in(run)


def origins_in(run: RunDirectory) -> list[Origin]:
    """Return the origins in a run directory. Raises RunError if an origin of the recipe is missing or altered."""
    origins, entries = [], run.config.get("origins", [])
    if missing := {*run.recipe.origins} - {entry["path"] for entry in entries}:
        raise schema.DamagedError(
            f"{run.path / 'config.json'}: damaged: no origin {quote(min(missing), 400)}, which recipe.toml lists"
        )
    for number, entry in enumerate(entries):
        copy = RunDirectory(run.origins / str(number))
        run.manifest.check(_manifest_name(number))
        origins.append(Origin(copy, entry["path"], entry["sha256"]))
    return origins


def copy_origins(run: RunDirectory, origins: Sequence[Origin]) -> list[dict[str, Any]]:
    """Copy origins into `run`, and return their entries for config.json. Raises RunError if an origin has changed."""
    for number, origin in enumerate(origins):
        if copy_run(origin.run, run.origins / str(number))[origin.run.weights.name].sha256 != origin.sha256:
            raise RunError(f"{origin.path}: has changed since this run began to read it; try again")
        list_origin(run, number)
    return [{"path": origin.path, "sha256": origin.sha256} for origin in origins]


def _read_origin(path: str) -> Origin:
    run = RunDirectory(path)
    try:
        assert run.entry  # raises RunError if there is no run, or its task is unknown
        return Origin(run, path, run.weights_entry.sha256)
    except RunError as error:
        raise type(error)(f"{error}; an origin in the recipe is the directory of a trained run") from None


def _manifest_name(number: int) -> str:
    return f"origins/{number}/{schema.MANIFEST}"


def list_origin(run: RunDirectory, number: int) -> None:
    """Add the manifest of copy `number` to the manifest of the run."""
    partial = partial_path(run.origins / str(number) / schema.MANIFEST)
    partial.with_name(schema.MANIFEST).replace(partial)
    run.manifest.replace({_manifest_name(number): partial})


def copy_run(source: RunDirectory, target: Path) -> dict[str, schema.FileEntry]:
    """Copy the files and the origins of a run. Returns the manifest entries of the files."""
    target.mkdir(parents=True)
    files = _list_files(source)
    for name, entry in files.items():
        with schema.convert_read_errors(source.path / name):
            shutil.copyfile(source.path / name, target / name)
        if (copy_entry := entry_of(target / name)).sha256 != entry.sha256:
            raise altered_error(source.path / name, entry, copy_entry.bytes)
        flush(target / name)
    Manifest(target).write(schema.ManifestContent(files=files))
    copy_origins(RunDirectory(target), origins_in(source))
    return files


def _list_files(run: RunDirectory) -> dict[str, schema.FileEntry]:
    entries = run.manifest.entries()
    return {name: entries[name] for name in sorted(schema.file_names() & entries.keys())}
