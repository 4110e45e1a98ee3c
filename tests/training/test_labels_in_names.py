"""A run does not go on with data whose labels have changed in names of files and folders, or in files beside them.

The bytes of the files that are read stay as they were, and so does their order.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ensue.data.detection.format_table import CLASS_FILES, FOLDERS
from ensue.data.examples import DOCUMENT_FORMATS
from ensue.errors import RunError
from ensue.recipe.tables import Recipe
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.data_set import fingerprints_of
from ensue.training.run import begin_job
from extensions.frames import tiny_frames
from training.tiny import run_tiny, seal
from training.tiny_texts import class_files, classifying, documents, folders, tsv, without_pictures


class Named(NamedTuple):
    """Data, a change of their labels alone, and the recipe that reads them."""

    write: Callable[[Path], Path]
    relabel: Callable[[Path], object]
    recipe: Callable[..., Recipe]


def series(folder: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.full((3, 2), number, np.float32))
    return folder


def idx(values: Any) -> bytes:
    array = np.array(values, np.uint8)
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def labels_beside(folder: Path, labels: tuple[int, ...] = (0, 1, 0, 1)) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "t-labels-idx1-ubyte").write_bytes(idx(labels))
    (folder / "t-images-idx3-ubyte").write_bytes(idx(np.arange(16).reshape(4, 2, 2)))
    return folder / "t-images-idx3-ubyte"


def table_of_paths(folder: Path) -> Path:
    series(folder, "a/1.npy", "a/2.npy", "b/3.npy", "b/4.npy")
    (folder / "table.csv").write_text("path,label\na/1.npy,a\na/2.npy,a\nb/3.npy,b\nb/4.npy,b\n")
    return folder / "table.csv"


def with_pattern(path: Path, **changes: Any) -> Recipe:
    return tiny_frames.recipe(path, data={"pattern": "{}_{label}.npy"} | changes.pop("data", {}), **changes)


CASES = {
    FOLDERS: Named(
        lambda root: folders(documents(30), root),
        lambda root: next((root / "cooking").iterdir()).rename(root / "a"),
        classifying,
    ),
    "folders, moved": Named(
        lambda root: folders(documents(30), root),
        lambda root: max((root / "cooking").iterdir()).rename(root / "music" / "!0.txt"),
        classifying,
    ),
    CLASS_FILES: Named(
        lambda root: class_files(documents(30), root),
        lambda root: (root / "music.txt").rename(root / "math.txt"),
        classifying,
    ),
    "frames by folder": Named(
        lambda root: series(root, "a/1.npy", "a/2.npy", "b/3.npy", "b/4.npy"),
        lambda root: (root / "a" / "2.npy").rename(root / "b" / "2.npy"),
        tiny_frames.recipe,
    ),
    "frames by pattern": Named(
        lambda root: series(root, "1_a.npy", "2_a.npy", "3_b.npy", "4_b.npy"),
        lambda root: (root / "2_a.npy").rename(root / "2_b.npy"),
        with_pattern,
    ),
    "images with labels beside them": Named(
        labels_beside, lambda path: labels_beside(path.parent, (1, 1, 0, 0)), tiny_frames.recipe
    ),
    "a table of paths": Named(
        table_of_paths, lambda path: series(path.parent, "a/2.npy", "a/1.npy"), tiny_frames.recipe
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(monkeypatch)


def test_each_format_of_named_classes_is_here() -> None:
    assert {name for name in DOCUMENT_FORMATS if "class" in name} | {FOLDERS} <= {*CASES}


@pytest.mark.parametrize("key", ["train", "valid", "test"])
@pytest.mark.parametrize("case", CASES)
def test_a_change_of_labels_is_noticed(case: str, key: str, tmp_path: Path) -> None:
    named = CASES[case]
    paths = {other: named.write(tmp_path / other) for other in ("train", "valid", "test")}

    def digest() -> str:
        data = {other: str(path) for other, path in paths.items() if other != "train"}
        return fingerprints_of(begin_job(named.recipe(paths["train"], data=data), None))[key]

    before = digest()
    assert digest() == before
    named.relabel(paths[key])
    assert digest() != before


def test_a_run_with_other_labels_does_not_go_on(tmp_path: Path) -> None:
    named = CASES["folders, moved"]
    path = named.write(tmp_path / "data")
    run_tiny(classifying(path), tmp_path / "run")
    moved = path.rename(tmp_path / "moved")
    run_tiny(classifying(moved, steps=14), tmp_path / "run", resume=True)
    named.relabel(moved)
    with pytest.raises(RunError, match="moved has changed since this run began"):
        run_tiny(classifying(moved, steps=16), tmp_path / "run", resume=True)


def test_runs_without_a_digest_of_labels_go_on(tmp_path: Path) -> None:
    path, out = folders(documents(30), tmp_path / "data"), tmp_path / "run"
    run_tiny(classifying(path), out)
    config = RunDirectory(out).config
    config["text"], labels = config["text"].split("+")
    assert labels
    (out / "config.json").write_text(json.dumps(config))
    seal(out)
    run_tiny(classifying(path, steps=14), out, resume=True)


def test_a_file_without_labels_in_its_name_may_be_renamed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in (1, 2):
        (tmp_path / "data" / f"part{number}.tsv").write_text(tsv(documents(20, seed=number)))
    before = fingerprints_of(begin_job(classifying(tmp_path / "data"), None))
    (tmp_path / "data" / "part1.tsv").rename(tmp_path / "data" / "first.tsv")
    assert fingerprints_of(begin_job(classifying(tmp_path / "data"), None)) == before
