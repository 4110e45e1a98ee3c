"""Paths in the files of a foreign folder cannot lead out of the folder."""

import os
from pathlib import Path

import pytest

from ensue.errors import DataError
from ensue.extensions.hub.pushing import push
from ensue.extensions.importing.importing import read_model
from ensue.extensions.importing.weight_files import check_contained


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("a key")
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize("name", ["vocab.txt", "1_Pooling/config.json", "README.md", "curve.png"])
@pytest.mark.parametrize("target", ["file", "folder", "through", "nothing", "pipe"])
def test_links_out_of_a_folder_and_pipes_are_refused(folder: Path, name: str, target: str) -> None:
    path = folder / name
    match target:
        case "pipe":
            os.mkfifo(path)
        case "through":
            (folder / "inner").symlink_to("..")
            path.symlink_to("inner/secret")
        case _:
            path.symlink_to({"file": folder.parent / "secret", "folder": "/", "nothing": "../gone"}[target])
    for read in (check_contained, read_model):
        with pytest.raises(DataError, match=r"a link to a path outside the folder|neither a file nor a folder"):
            read(folder)


def test_links_within_a_folder_or_a_hub_cache_are_permitted(folder: Path) -> None:
    (folder / "vocab.txt").symlink_to("config.json")
    check_contained(folder)
    repository = folder.parent / "models--a--b"
    (repository / "blobs").mkdir(parents=True)
    (repository / "blobs" / "1").write_text("{}")
    (repository / "snapshots").mkdir()
    snapshot = folder.rename(repository / "snapshots" / "c0ffee")
    (snapshot / "merges.txt").symlink_to("../../blobs/1")
    check_contained(snapshot)
    (snapshot / "source.spm").symlink_to("../../../secret")
    with pytest.raises(DataError, match=r"a link to a path outside the folder"):
        check_contained(snapshot)


def test_a_run_with_links_is_not_pushed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "curve.png").symlink_to("../secret")
    with pytest.raises(DataError, match=r"curve\.png: a link to a path outside the folder"):
        push(folder, "a/b")
