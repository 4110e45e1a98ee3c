"""A run directory: all that a trained model is, on disk.

    recipe.toml        resolved, every default written out      metrics.jsonl    one line per report
    config.json        model, task and format_version           README.md        model card
    model.safetensors  best weights                             checkpoints/     step-N/ (checkpoint.py)
    tokenizer.json, labels.json                                 curve.png        the learning curve
    confusion.png          of classifiers: what is taken for what

Nothing in it can run code when it is loaded. One process at a time writes to it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from filelock import FileLock, Timeout
from torch import nn

from ensue.errors import RunError
from ensue.models.build import build_classifier, build_language_model, build_tagger
from ensue.recipe import ClassificationRecipe, LabelingRecipe, Recipe, read_recipe
from ensue.text.classes import Classes
from ensue.text.labels import Labels
from ensue.text.lexicon import Lexicon
from ensue.text.tokenizers import Tokenizer, load_tokenizer
from ensue.training.weights import load_parameters, read_tensors, write_tensors, write_text
from ensue.version import VERSION

Parsed = TypeVar("Parsed")
FORMAT_VERSION = 1
FILES = (
    "recipe.toml", "config.json", "model.safetensors", "tokenizer.json", "labels.json", "metrics.jsonl", "README.md",
    "curve.png", "confusion.png",
)  # fmt: skip


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

    def lexicon(self) -> Lexicon:
        """What a tagger or classifier knows of words."""
        return self._read("tokenizer.json", Lexicon.from_json)

    def labels(self) -> Labels:
        """The labels of a tagger."""
        return self._read("labels.json", Labels.from_json)

    def classes(self) -> Classes:
        """The labels of a classifier."""
        return self._read("labels.json", Classes.from_json)

    def empty_vectors(self) -> torch.Tensor | None:
        """Room for the pretrained vectors of a model that has some."""
        d_vectors, vocabulary = self.config.get("d_vectors"), self.lexicon().vectors
        return torch.zeros(len(vocabulary), d_vectors) if d_vectors and vocabulary else None

    def _read(self, name: str, parse: Callable[[Any], Parsed]) -> Parsed:
        path = self.path / name
        try:
            return parse(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise RunError(f"{path}: missing") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{path}: damaged: {error}") from None

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        write_text(self.path / name, json.dumps(content, ensure_ascii=False) + "\n")

    def model(self, device: torch.device) -> Any:
        """The model with its best weights, ready for use."""
        model = self._untrained()
        load_parameters(model, read_tensors(self.weights), self.weights)
        return model.to(device).eval()

    def _untrained(self) -> nn.Module:
        """The model that the recipe and the vocabularies describe."""
        match self.recipe:
            case LabelingRecipe() as recipe:
                return build_tagger(
                    recipe.features, recipe.model, recipe.head, lexicon=self.lexicon(), labels=self.labels(),
                    pretrained=self.empty_vectors(),
                )  # fmt: skip
            case ClassificationRecipe() as recipe:
                classes = self.classes()
                return build_classifier(
                    recipe.features, recipe.model, recipe.head, lexicon=self.lexicon(), num_labels=len(classes),
                    multiple=classes.multiple, pair=bool(self.config.get("pair")), segment=recipe.data.segment_tokens,
                    pretrained=self.empty_vectors(),
                )  # fmt: skip
        size = self.config.get("vocabulary_size")
        if not isinstance(size, int):
            raise RunError(f"{self.path / 'config.json'}: damaged: it has no vocabulary_size")
        return build_language_model(self.recipe.model, vocabulary_size=size)

    def create(self, recipe: Recipe, *, config: dict[str, Any]) -> None:
        """Write what is known before the first step; config.json comes last and makes it a run."""
        self.save_recipe(recipe)
        content = {
            "format_version": FORMAT_VERSION,
            "ensue": VERSION,
            "task": recipe.task,
            "model": recipe.model.model_dump(),
            **config,
        }
        write_text(self.path / "config.json", json.dumps(content, indent=2) + "\n")
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
