"""A recipe of a small model that labels frames."""

from pathlib import Path
from typing import Any

from ensue.recipe import validate_recipe
from ensue.recipe.tables import Recipe


def recipe(train: Path, task: str = "frame-classification", **changes: Any) -> Recipe:
    tables = {name: changes.pop(name, {}) for name in ("data", "features", "head")}
    budget = {"steps": 30, "batch_size": 16, "learning_rate": 0.05, "validations": 1, "precision": "float32"}
    document = {
        "task": task, **tables, "data": {"train": str(train), "valid_fraction": 0.2, **tables["data"]},
        "encoder": {"kind": "lstm", "d_model": 4}, "train": budget | changes,
    }  # fmt: skip
    return validate_recipe(document, where="tiny")
