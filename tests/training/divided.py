"""Jobs whose data are divided into training and validation data, and a check of shared examples."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ensue.recipe import read_recipe
from ensue.training.run import begin_job


def job(name: str, train: Path, settings: dict[str, Any] | None = None, **data: Any) -> Any:
    settings_of_job = {"data.train": str(train)} | {f"data.{key}": data[key] for key in data} | (settings or {})
    return begin_job(read_recipe(name, settings_of_job), None)


def write_table(path: Path, rows: Sequence[Sequence[str]], separator: str = "\t") -> Path:
    path.write_text("".join(separator.join(row) + "\n" for row in rows), encoding="utf-8")
    return path


def check_counts_of_both_parts(name: str, examples: str, rows: Sequence[Sequence[str]], folder: Path) -> None:
    all_rows = write_table(folder / f"{name}.csv", rows, ",")
    new = ("new.npy", *rows[1][1:])
    part = write_table(folder / f"{name}-part.csv", [rows[0], *rows[5:8], new], ",")
    notes = job(name, all_rows, valid=str(part), test=str(part)).notes
    for what in ("validation", "test"):
        assert f"3 of 4 {examples} of the {what} data are in the training data, too" in notes, (name, notes)
    assert not [note for note in job(name, all_rows).notes if "too" in note]
