"""The comparison of a run's processes before the first step: recipe, code, data and weights have to be the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from torch import nn

from ensue.errors import EnsueError, RecipeError
from ensue.ranks import SHARDS, Ranks
from ensue.recipe import Recipe
from ensue.recipe.tables import TuningRecipe
from ensue.runs.checkpoint import complete_checkpoints
from ensue.runs.directory import RunDirectory
from ensue.runs.weights import bytes_of
from ensue.tasks.contract.data_set import fingerprints_of
from ensue.tasks.contract.job import Job
from ensue.types import leaves
from ensue.version import VERSION


def check_together(company: Ranks, recipe: Recipe, run: RunDirectory, job: Job[Any], model: nn.Module) -> None:
    """Raises EnsueError if the processes cannot train this recipe together, or differ in something."""
    if recipe.has_own_update and recipe.train.deterministic:
        raise RecipeError(f"train.deterministic: a {recipe.what} is trained by one process, and always repeats itself")
    if recipe.train.sharded:
        _check_sharded(recipe)
    if company.size == 1:
        return
    if recipe.has_own_update:
        raise EnsueError(f"a {recipe.what} is trained by one process, found {company.size}; its updates are no sums")
    if company.exact and SHARDS % company.size:
        raise EnsueError(f"train.deterministic needs 1, 2, 4 or {SHARDS} processes, found {company.size}")
    rows, where = recipe.train.batch_size, "train.batch_size"
    if (carried := next(leaves(job.task.initial_state(model)), None)) is not None and len(carried) < rows:
        rows, where = len(carried), "the rows that the text fills"
    if company.size > rows:
        raise EnsueError(f"{company.size} processes need as many rows of a batch; found {rows} ({where})")
    _compare(company.gathered(facts(recipe, run, job, model)))


def _check_sharded(recipe: Recipe) -> None:
    """Raises RecipeError for a recipe whose parameters cannot be held in parts."""
    if recipe.has_own_update:
        raise RecipeError(f"train.sharded: a {recipe.what} is trained by one process")
    for name in ("freeze", "unfreeze", "new_first"):
        if getattr(recipe.tuning, name) != getattr(TuningRecipe(), name):
            raise RecipeError(f"train.sharded does not go with tuning.{name}; it trains all parameters in every step")


def facts(recipe: Recipe, run: RunDirectory, job: Job[Any], model: nn.Module) -> dict[str, Any]:
    """The values that have to be the same everywhere, by names for people; data and weights as digests."""
    found = {f"recipe: {key}": value for key, value in recipe.values().items()}
    found |= {"ensue": VERSION, "torch": torch.__version__, "the run directory": str(run.path.absolute())}
    found["the newest checkpoint"] = next((path.name for path in complete_checkpoints(run.checkpoints)[::-1]), "none")
    digests = fingerprints_of(job)
    parts = {
        "the training data": "train",
        "the validation data": "valid",
        "the test data": "test",
        "the teacher's answers": "teacher",
    }
    found |= {name: digests.get(key, "") for name, key in parts.items()}
    files = json.dumps(job.parts.files(), sort_keys=True, default=str)
    found["vocabularies and labels"] = hashlib.sha256(files.encode()).hexdigest()
    found["the initial weights"] = _digest(model)
    return found


def _compare(by_rank: list[dict[str, Any]]) -> None:
    first = by_rank[0]
    for rank, other in enumerate(by_rank):
        for name in {**first, **other}:
            ours, theirs = (found.get(name, "none") for found in (first, other))
            if ours != theirs:
                raise EnsueError(f"process {rank} differs in {name}: {_short(theirs)}, process 0 has {_short(ours)}")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) < 64 or " " in text else f"{text[:12]}..."


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(bytes_of(parameter))
    return digest.hexdigest()
