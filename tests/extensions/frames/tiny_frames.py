"""A recipe of a small model that labels frames."""

from pathlib import Path
from typing import Any

from ensue.recipe.tables import Recipe
from training.tiny import small_recipe


def recipe(train: Path, task: str = "frame-classification", **changes: Any) -> Recipe:
    return small_recipe(
        task, train, changes, data={"valid_fraction": 0.2}, encoder={"kind": "lstm", "d_model": 4}, steps=30,
        batch_size=16, learning_rate=0.05,
    )  # fmt: skip
