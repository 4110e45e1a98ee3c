"""Copies of origins inside of runs are complete, include their own origins, and are checked before reading."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest
import torch

from ensue.errors import RunError
from ensue.runs.directory import RunDirectory, copy_origins, origins_for, origins_in
from training.tiny import run_tiny, tiny_recipe, words


class Beginning(Protocol):
    """A function that makes a run with these origins, without training."""

    def __call__(self, *origins: Path) -> RunDirectory: ...


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("origins")
    (folder / "text.txt").write_text(words(300))
    run_tiny(tiny_recipe(folder / "text.txt", steps=2, validations=1), folder / "run")
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "origin"))


@pytest.fixture
def begin(run: Path, tmp_path: Path) -> Beginning:
    numbers = iter(range(9))

    def begin(*origins: Path) -> RunDirectory:
        outer, model = RunDirectory(tmp_path / f"outer-{next(numbers)}"), RunDirectory(run)
        recipe, tokenizer = model.recipe, json.loads((run / "tokenizer.json").read_text())
        config = {**model.config, "origins": copy_origins(outer, origins_for([str(path) for path in origins], None))}
        outer.create(recipe, files={"tokenizer.json": tokenizer}, config=config)
        outer.publish(model.weights)
        return outer

    return begin


def weights(run: RunDirectory) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = run.model(torch.device("cpu")).state_dict()
    return state


def test_a_copy_is_complete_without_the_original(run: Path, begin: Beginning) -> None:
    before = weights(RunDirectory(run))
    outer = begin(run)
    entry = RunDirectory(run).weights_entry
    shutil.rmtree(run)
    (origin,) = origins_in(RunDirectory(outer.path))
    assert (origin.path, origin.sha256) == (str(run), entry.sha256)
    assert weights(origin.run).keys() == before.keys()
    assert all(torch.equal(weights(origin.run)[name], before[name]) for name in before)
    names = {path.name for path in (outer.path / "origins" / "0").iterdir()}
    assert names == {"recipe.toml", "config.json", "tokenizer.json", "model.safetensors", "manifest.json"}


def test_origins_of_origins_are_copied(run: Path, begin: Beginning) -> None:
    outermost = begin(begin(run).path, run)
    shutil.rmtree(run)
    inner, second = origins_in(outermost)
    assert weights(second.run)
    assert weights(origins_in(inner.run)[0].run)


def alter(copy: Path) -> None:
    (copy / "recipe.toml").write_text("about = 'another'\n" + (copy / "recipe.toml").read_text())


def alter_with_manifest(copy: Path) -> None:
    alter(copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["written"] = {}
    (copy / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shutil.rmtree, r"origins/0/manifest.json: missing"),
        (alter, r"origins/0/recipe.toml: altered since it was written"),
        (alter_with_manifest, r"origins/0/manifest.json: (altered|damaged)"),
    ],
)
def test_a_missing_or_altered_copy_is_an_error_of_one_line(
    change: Callable[[Path], object], message: str, run: Path, begin: Beginning
) -> None:
    outer = begin(run)
    change(outer.path / "origins" / "0")
    with pytest.raises(RunError, match=message) as caught:
        weights(origins_in(RunDirectory(outer.path))[0].run)
    assert "\n" not in str(caught.value)


def test_an_origin_that_changes_meanwhile_is_refused(run: Path, tmp_path: Path) -> None:
    directory = RunDirectory(run)
    origins = origins_for([str(run)], None)
    other = tmp_path / "other.safetensors"
    other.write_bytes((run / "model.safetensors").read_bytes() + b" ")
    directory.publish(other)
    with pytest.raises(RunError, match="has changed since this run began to read it"):
        copy_origins(RunDirectory(tmp_path / "outer"), origins)


def test_origins_that_are_no_complete_run_are_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (run / "model.safetensors").unlink()
    expected = {
        tmp_path / "nowhere": "nowhere: no such run directory; an origin in the recipe is",
        tmp_path / "folder": "folder: not a run directory: it has no config.json; an origin",
    }
    for path, message in expected.items():
        with pytest.raises(RunError, match=message):
            origins_for([str(path)], None)
    with pytest.raises(RunError, match=r"model.safetensors: missing"):
        copy_origins(RunDirectory(tmp_path / "outer"), origins_for([str(run)], None))


def test_origins_are_removed_with_the_run(run: Path, begin: Beginning) -> None:
    outer = begin(run)
    outer.clear()
    assert not list(outer.path.iterdir())
    copy_origins(outer, origins_for([str(run)], None))  # as if the process was killed before config.json
    assert outer.find_foreign_file() == "manifest.json"
    (outer.path / ".lock").touch()
    assert outer.find_foreign_file() == ""
