"""Waves, and a recipe of a small model of their next frame."""

from pathlib import Path
from typing import Any

import numpy as np

from ensue.recipe.tables import Recipe
from training.tiny import small_recipe


def waves(count: int = 24, seed: int = 0) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    """Return series of a sine and its negative, of a large scale."""
    generator = np.random.default_rng(seed)
    series = []
    for _ in range(count):
        wave = np.sin(np.arange(int(generator.integers(5, 9))) + generator.uniform(0, 6))
        noisy = np.stack((wave, -wave), 1) + 0.1 * generator.normal(size=(len(wave), 2))
        series.append((40 * noisy + 1000).astype(np.float32))
    return series


def recipe(location: Path, kind: str = "none", **changes: Any) -> Recipe:
    return small_recipe(
        "frame-prediction", location, changes, data={"valid_fraction": 0.25}, encoder={"kind": "lstm", "d_model": 4},
        head={"components": 2}, latent={"kind": kind, "size": 2, "d_hidden": 5}, steps=12, batch_size=8,
        learning_rate=0.02,
    )  # fmt: skip
