"""Waves, and a recipe of a small model of their next frame."""

from pathlib import Path
from typing import Any

import numpy as np

from ensue.recipe import validate_recipe
from ensue.recipe.tables import Recipe


def waves(count: int = 24, seed: int = 0) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    """Series of a sine and its negative, far from normal."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        wave = np.sin(np.arange(int(generator.integers(5, 9))) + generator.uniform(0, 6))
        noisy = np.stack((wave, -wave), 1) + 0.1 * generator.normal(size=(len(wave), 2))
        found.append((40 * noisy + 1000).astype(np.float32))
    return found


def recipe(location: Path, kind: str = "none", **changes: Any) -> Recipe:
    budget = {"steps": 12, "batch_size": 8, "learning_rate": 0.02, "validations": 1, "precision": "float32"}
    document = {
        "task": "frame-prediction", "data": {"train": str(location), "valid_fraction": 0.25},
        "encoder": {"kind": "lstm", "d_model": 4}, "head": {"components": 2},
        "latent": {"kind": kind, "size": 2, "d_hidden": 5}, "train": budget,
    }  # fmt: skip
    for table, values in changes.items():
        document[table] = document.get(table, {}) | values  # type: ignore[operator]
    return validate_recipe(document, where="tiny")
