"""A run directory: all that a trained model is, on disk.

    recipe.toml        resolved, every default written out      metrics.jsonl    one line per report
    config.json        model, task and format_version           README.md        model card
    model.safetensors  best weights                             checkpoints/     step-N/ (checkpoint.py)
    tokenizer.json                                              curve.png        the learning curve

Nothing in it can run code when it is loaded. One process at a time writes to it.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ensue.errors import RunError
from ensue.models.build import build_language_model
from ensue.models.language_model import LanguageModel
from ensue.recipe import Recipe, read_recipe
from ensue.text.tokenizers import Tokenizer, load_tokenizer, save_tokenizer
from ensue.training.weights import load_parameters, read_tensors, write_tensors, write_text
from ensue.version import VERSION

FORMAT_VERSION = 1
FILES = ("recipe.toml", "config.json", "model.safetensors", "tokenizer.json", "metrics.jsonl", "README.md", "curve.png")


class RunDirectory:
    """The files of a run, read when they are asked for. Whatever is wrong with them is a `RunError` of one line."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def weights(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def exists(self) -> bool:
        """Whether training has begun here."""
        return (self.path / "config.json").is_file()

    def holds_other_things(self) -> str:
        """The name of something here that shows this to be no run directory, or of one that was being made; or ""."""
        if self.exists:
            return "" if self._is_ours() else "config.json"
        names = sorted(entry.name for entry in self.path.iterdir()) if self.path.is_dir() else []
        ours = {*FILES, "checkpoints"} if ".lock" in names else set()
        return next((name for name in names if name not in ours | {".lock"} and not name.endswith(".partial")), "")

    def _is_ours(self) -> bool:
        """Other programs have a config.json too; one that is damaged counts as ours."""
        try:
            config = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
        except (ValueError, OSError):
            return True
        return isinstance(config, dict) and "format_version" in config

    @cached_property
    def config(self) -> dict[str, Any]:
        """`config.json`, of a version that this program can read."""
        path = self.path / "config.json"
        if not self.path.is_dir():
            raise RunError(f"{self.path}: no such run directory")
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunError(f"{self.path}: not a run directory: it has no config.json") from None
        except (ValueError, OSError) as error:
            raise RunError(f"{path}: damaged: {error}") from None
        version = config.get("format_version") if isinstance(config, dict) else None
        if not isinstance(config, dict) or not isinstance(version, int):
            raise RunError(f"{path}: damaged: it has no format_version")
        if version > FORMAT_VERSION:
            raise RunError(
                f"{path}: format_version {version} is newer than this ensue {VERSION} reads ({FORMAT_VERSION}); "
                f"written by ensue {config.get('ensue')}"
            )
        return config

    @cached_property
    def recipe(self) -> Recipe:
        return read_recipe(self.path / "recipe.toml")

    def tokenizer(self) -> Tokenizer:
        path = self.path / "tokenizer.json"
        tokenizer, expected = load_tokenizer(path), self.config.get("vocabulary_size")
        if tokenizer.vocabulary_size != expected:
            raise RunError(f"{path}: not the model's: it has {tokenizer.vocabulary_size} symbols, not {expected}")
        return tokenizer

    def model(self, device: torch.device) -> LanguageModel:
        """The model with its best weights, ready for use."""
        size = self.config.get("vocabulary_size")
        if not isinstance(size, int):
            raise RunError(f"{self.path / 'config.json'}: damaged: it has no vocabulary_size")
        model = build_language_model(self.recipe.model, vocabulary_size=size)
        load_parameters(model, read_tensors(self.weights), self.weights)
        return model.to(device).eval()

    def create(self, recipe: Recipe, tokenizer: Tokenizer, *, text: str, runtime: dict[str, Any]) -> None:
        """Write what is known before the first step; config.json comes last and makes it a run."""
        save_tokenizer(tokenizer, self.path / "tokenizer.json")
        self.save_recipe(recipe)
        config = {
            "format_version": FORMAT_VERSION,
            "ensue": VERSION,
            "task": recipe.task,
            "model": recipe.model.model_dump(),
            "vocabulary_size": tokenizer.vocabulary_size,
            "text": text,
            "runtime": runtime,
        }
        write_text(self.path / "config.json", json.dumps(config, indent=2) + "\n")
        self.__dict__.pop("config", None)

    def save_recipe(self, recipe: Recipe) -> None:
        write_text(self.path / "recipe.toml", recipe.to_toml())
        self.__dict__.pop("recipe", None)

    def save_weights(self, model: nn.Module) -> None:
        write_tensors(self.weights, dict(model.named_parameters()))

    def clear(self) -> None:
        """Remove what a run consists of, and nothing else; config.json goes first, so that no half of a run is one."""
        (self.path / "config.json").unlink(missing_ok=True)
        for name in FILES:
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        for name in ("config", "recipe"):
            self.__dict__.pop(name, None)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training here; a lock ends with its process, however that ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("a")
        except OSError as error:
            raise RunError(f"{self.path}: cannot be written ({error.strerror})") from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(f"{self.path}: another process is training in this run directory") from None
            yield
