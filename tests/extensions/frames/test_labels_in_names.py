"""A run does not resume with changed labels, whether in names of files and folders or in files of labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensue.recipe.tables import Recipe
from extensions.frames import tiny_frames
from training.named_labels import Named, check_notices_labels


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


@pytest.mark.parametrize("key", ["train", "valid", "test"])
@pytest.mark.parametrize("case", CASES)
def test_a_change_of_labels_is_noticed(case: str, key: str, tmp_path: Path) -> None:
    check_notices_labels(CASES[case], key, tmp_path)
