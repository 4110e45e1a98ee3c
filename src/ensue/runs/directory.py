"""A run directory, which holds a trained model completely.

    recipe.toml        resolved, every default written out      metrics.jsonl    one line per report
    config.json        model, task and format_version           README.md        model card
    model.safetensors  best weights                             checkpoints/     step-N/ (checkpoint.py)
    manifest.json      checksums of all files that are read     curve.png        learning curve
    origins/N/         a run from which it begins (origin.py)

A task adds files of its own, such as tokenizer.json.

Nothing in it can run code when it is loaded. One process at a time writes to it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from filelock import FileLock, Timeout

from ensue.errors import RecipeError, RunError
from ensue.extension import with_needs
from ensue.parsing import ParseError, parse_json, parse_toml, read_bounded, shown
from ensue.recipe import Recipe, as_trained, validate_recipe
from ensue.runs.checkpoint import link
from ensue.runs.hub import local_run
from ensue.runs.manifest import Manifest, entry_of
from ensue.runs.schema import (
    FORMAT_VERSION,
    Config,
    DamagedError,
    Entry,
    check_is_run,
    checked,
    file_names,
    parsed,
    told,
)
from ensue.runs.weights import flush, load_parameters, partial_of, read_tensors
from ensue.tasks import TaskEntry, has_task, task_entry
from ensue.version import VERSION

Parsed = TypeVar("Parsed")
MAX_CONFIG = 1 << 20
"""The most bytes of a config.json."""


class RunDirectory:
    """The files of a run, read at first use. A file that is missing or damaged is a `RunError` of one line.

    The run `hf:NAME` of the hub is downloaded first, if it may be. `given` is the path as it was given.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.given = local_run(path), str(path)
        self.manifest, self.checkpoints = Manifest(self.path), self.path / "checkpoints"
        self.origins = self.path / "origins"
        """The folder of the runs from which it begins."""
        self.weights, self.metrics = self.path / "model.safetensors", self.path / "metrics.jsonl"
        """The best weights, and the reports."""

    @property
    def exists(self) -> bool:
        """Whether the directory holds a run."""
        return (self.path / "config.json").is_file()

    def holds_other_things(self) -> str:
        """The name of a file that does not belong to a run; "" if there is none."""
        if self.exists:
            return "" if self._is_ours() else "config.json"
        names = sorted(entry.name for entry in self.path.iterdir()) if self.path.is_dir() else []
        ours = {*file_names(), "checkpoints", "origins", "tensorboard"} if ".lock" in names else set()
        return next((name for name in names if name not in ours | {".lock"} and not name.endswith(".partial")), "")

    def _is_ours(self) -> bool:
        """Whether config.json is that of a run: other programs have such a file too. A damaged one counts."""
        try:
            config = parse_json(read_bounded(self.path / "config.json", MAX_CONFIG))
        except (ParseError, OSError):
            return True
        return isinstance(config, dict) and "format_version" in config

    @cached_property
    def config(self) -> dict[str, Any]:
        """`config.json`, of a version that this program can read."""
        path = self.path / "config.json"
        check_is_run(self.path)
        with told(path):
            config = parsed(read_bounded(path, MAX_CONFIG))
        version = config.get("format_version") if isinstance(config, dict) else None
        if type(version) is not int:
            raise DamagedError(f"{path}: damaged: it has no format_version")
        if version != FORMAT_VERSION:
            than = "newer" if version > FORMAT_VERSION else "older"
            raise RunError(
                f"{path}: format_version {shown(version)} is {than} than this ensue {VERSION} reads "
                f"({FORMAT_VERSION}); written by ensue {shown(config.get('ensue'))}"
            )
        self.manifest.check("config.json")
        task = config.get("task")
        checked(task_entry(task).parts_class.config if has_task(task) else Config, config, path)
        return cast("dict[str, Any]", config)

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe, with every default."""
        content = self.manifest.read("recipe.toml")
        with told(self.path / "recipe.toml"):
            return validate_recipe(as_trained(parse_toml(content)), where=str(self.path / "recipe.toml"))

    @cached_property
    def entry(self) -> TaskEntry:
        """The task of the run."""
        task = self.config["task"]
        if not has_task(task):
            with told(self.path / "recipe.toml"):
                needs = parse_toml(self.manifest.read("recipe.toml")).get("needs")
            try:
                with_needs(needs if isinstance(needs, list) else [])
            except RecipeError as error:
                raise RunError(f"{self.path}: {error}") from None
            raise RunError(f"{self.path}: it needs the task {shown(task)}, which no installed extension has")
        if task != self.recipe.task:
            raise RunError(f"{self.path}: damaged: config.json is of {task}, recipe.toml of {self.recipe.task}")
        return task_entry(task)

    @cached_property
    def parts(self) -> Any:
        """The `ModelParts` of the task, from which the model was built with the recipe."""
        return self.entry.parts_class.read(self)

    def read_json(self, name: str, parse: Callable[[Any], Parsed]) -> Parsed:
        """The content of a JSON file. Raises DamagedError for one of which `parse` raises ValueError."""
        path = self.path / name
        with told(path):
            content = parsed(self.manifest.read(name))
        try:
            return parse(content)
        except ValueError as error:
            raise DamagedError(f"{path}: damaged: {error}") from None

    @property
    def weights_entry(self) -> Entry:
        """Size and checksum of the best weights. Raises RunError if there are none yet."""
        entry = self.manifest.entries().get(self.weights.name)
        if entry is None and self.weights.exists():
            raise DamagedError(f"{self.weights}: not of this run: {self.manifest.path.name} does not name it")
        if entry is None:
            raise RunError(f"{self.weights}: no such file: the run has not come to its first validation")
        return entry

    def model(self, device: torch.device) -> Any:
        """The model with its best weights, in evaluation mode."""
        assert self.weights_entry  # raises if there are none
        try:
            model = self.parts.build(self.recipe)
        except (ValueError, RuntimeError, MemoryError) as error:
            recipe = self.path / "recipe.toml"
            raise DamagedError(f"{recipe}: no model can be made of it here: {shown(str(error), 200)[1:-1]}") from None
        load_parameters(model, read_tensors(self.manifest.check(self.weights.name)), self.weights)
        return model.to(device).eval()

    def create(self, recipe: Recipe, *, files: Mapping[str, Any], config: dict[str, Any]) -> None:
        """Writes the files that are known before the first step; config.json, which makes it a run, comes last."""
        content = {
            "format_version": FORMAT_VERSION,
            "ensue": VERSION,
            "task": recipe.task,
            **config,
        }
        self.write({**files, "recipe.toml": recipe.to_toml(), "config.json": json.dumps(content, indent=2) + "\n"})

    def write(self, contents: Mapping[str, Any]) -> None:
        """Replaces files and their entries in the manifest. Contents that are not text are written as JSON."""
        files = {
            name: content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) + "\n"
            for name, content in contents.items()
        }
        partials = {name: partial_of(self.path / name) for name in files}
        try:
            for name, partial in partials.items():
                partial.write_text(files[name], encoding="utf-8", errors="backslashreplace")
                flush(partial)
            self.manifest.replace(partials)
        finally:
            for partial in partials.values():
                partial.unlink(missing_ok=True)
        self._forget()

    def publish(self, weights: Path) -> None:
        """Makes these the best weights of the run, if they are not yet."""
        if self.manifest.holds(self.weights.name, entry_of(weights)):
            return
        partial = partial_of(self.weights)
        link(weights, partial)
        self.manifest.replace({self.weights.name: partial})

    def clear(self, spare: Path | None = None) -> None:
        """Remove the files of the run, but not `spare`. config.json goes first: an incomplete run does not count."""
        (self.path / "config.json").unlink(missing_ok=True)
        for path in (self.path / name for name in file_names()):
            path.unlink(missing_ok=True)
            if partial_of(path) != spare:
                partial_of(path).unlink(missing_ok=True)  # of a process that was killed while it wrote
        for folder in (self.checkpoints, self.origins, self.path / "tensorboard"):
            shutil.rmtree(folder, ignore_errors=True)
        self._forget()

    def _forget(self) -> None:
        """Forgets the contents of files; they are read again at the next use."""
        for name in ("config", "recipe", "entry", "parts"):
            self.__dict__.pop(name, None)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps other processes from training here during a `with` block. The lock ends with its process."""
        lock = FileLock(self.path / ".lock")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            raise RunError(f"{self.path}: another process is training in this run directory") from None
        except (OSError, NotImplementedError) as error:  # the second of file systems that know no locks
            raise RunError(f"{self.path}: cannot be written ({getattr(error, 'strerror', error)})") from None
        try:
            yield
        finally:
            lock.release()
