"""A run is not resumed with data whose labels, which are names of files or folders, have changed.

The content and the order of the files do not change.
"""

import json
from pathlib import Path

import pytest

from ensue.data.detection.format_table import CLASS_FILES, FOLDERS
from ensue.data.examples.formats import DOCUMENT_FORMATS
from ensue.errors import RunError
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.data_set import fingerprints_of
from ensue.training.run import begin_job
from training.named_labels import Named, check_notices_labels
from training.tiny import run_tiny, seal
from training.tiny_texts import class_files, classifying, documents, folders, tsv

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
}  # fmt: skip


def test_cases_has_each_format_of_named_classes() -> None:
    assert {name for name in DOCUMENT_FORMATS if "class" in name} | {FOLDERS} <= {*CASES}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("key", ["train", "valid", "test"])
@pytest.mark.parametrize("case", CASES)
def test_changed_labels_are_detected(case: str, key: str, tmp_path: Path) -> None:
    check_notices_labels(CASES[case], key, tmp_path)


def test_a_run_with_changed_labels_is_not_resumed(tmp_path: Path) -> None:
    named = CASES["folders, moved"]
    path = named.write(tmp_path / "data")
    run_tiny(classifying(path), tmp_path / "run")
    moved = path.rename(tmp_path / "moved")
    run_tiny(classifying(moved, steps=14), tmp_path / "run", resume=True)
    named.relabel(moved)
    with pytest.raises(RunError, match="moved has changed since this run began"):
        run_tiny(classifying(moved, steps=16), tmp_path / "run", resume=True)


def test_runs_without_a_digest_of_labels_are_resumed(tmp_path: Path) -> None:
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
