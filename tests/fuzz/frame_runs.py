"""Small runs of models of frames, their data, and commands for them."""

from pathlib import Path
from typing import Any

import numpy as np

from ensue.recipe import Recipe, validate_recipe

ROWS, COLUMNS = 8, 12
LSTM = {"kind": "lstm", "d_model": 4}
CAPTIONING, GLIMPSES, DRAWING = "captioning", "glimpses", "drawing"
QUESTIONS = {
    "frame-classification": ("predict", "evaluate", "inspect"),
    "frame-labeling": ("predict", "evaluate", "inspect"),
    "frame-prediction": ("predict", "evaluate", "score", "inspect"),
    CAPTIONING: ("predict", "evaluate", "score", "inspect"),
    GLIMPSES: ("predict", "evaluate", "inspect"),
    DRAWING: ("evaluate", "inspect"),
}
"""The commands that take a run and a file, by the task of the run."""
TABLES: dict[str, dict[str, Any]] = {
    "frame-classification": {"encoder": LSTM},
    "frame-labeling": {"encoder": LSTM, "head": {"kind": "crf"}},
    "frame-prediction": {"encoder": LSTM, "latent": {"kind": "vrnn", "size": 2, "d_hidden": 3}},
    CAPTIONING: {
        "data": {"labels": "label"}, "grid": {"channels": [3], "halvings": 1}, "tokens": {"d_embedding": 3},
        "decoder": LSTM, "features": {"normalize": "none"},
    },
    GLIMPSES: {
        "glimpses": {"size": 4, "scales": 1, "convolutions": [2], "view": 2, "view_convolutions": [2], "samples": 1},
        "encoder": LSTM,
    },
    DRAWING: {"encoder": LSTM, "decoder": LSTM, "canvas": {"glimpses": 2, "d_latent": 2, "read": 2, "write": 2}},
}  # fmt: skip


def recipes(folder: Path) -> list[tuple[str, Path, Recipe]]:
    """Return the name, the data and the recipe of each run, and write the data into the folder."""
    return [(task, data := write(folder / f"{task}.npz", task), _recipe(data, task)) for task in TABLES]


def write(path: Path, task: str) -> Path:
    """Write twelve images or series with labels of the task."""
    generator = np.random.default_rng(0)
    arrays: dict[str, Any] = {"frames": generator.random((12, ROWS, COLUMNS)).astype(np.float32)}
    if task == "frame-labeling":
        arrays["labels"] = np.array(["a", "b"])[generator.integers(0, 2, 12 * ROWS)]
    elif task != "frame-prediction":
        arrays["labels"] = ["one", "two one" if task in (CAPTIONING, GLIMPSES) else "two"] * 6
    np.savez(path, **arrays)
    return path


def _recipe(data: Path, task: str) -> Recipe:
    tables = {name: dict(table) for name, table in TABLES[task].items()}
    tables["data"] = {"train": str(data)} | tables.get("data", {})
    train = {"steps": 3, "batch_size": 4, "validations": 1, "precision": "float32"}
    return validate_recipe({"task": task, **tables, "train": train}, where=task)


def settings(task: str) -> list[str]:
    """Return the tables of a small run as settings of a command."""
    return [
        word
        for table, keys in TABLES[task].items()
        for key, value in keys.items()
        for word in ("--set", f"{table}.{key}={value!r}".replace("'", '"'))
    ]


def questions(task: str, data: str) -> list[list[str]]:
    """Return commands for a run in the folder `run` with a file of data."""
    return [
        [command, "run", f"{data}[1]" if command == "inspect" and task != DRAWING else data]
        for command in QUESTIONS[task]
    ]
