"""A run on prepared ids is the run on the text, bit for bit."""

from pathlib import Path
from typing import Any

import pytest

from ensue.errors import DataError, RecipeError
from ensue.recipe import Recipe, read_recipe
from ensue.tasks.preparation import prepare_corpus
from training.tiny import assert_refused, kept, run_tiny, tiny_recipe, words
from training.tiny_masked import masked_recipe
from training.tiny_texts import classifying, without_pictures


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_pictures(monkeypatch)
    monkeypatch.setattr("ensue.data.sources.PIECE_CHARACTERS", 100)
    (tmp_path / "text.txt").write_text(words(800))
    return tmp_path / "text.txt"


def on(recipe: Recipe, path: Path, **changes: Any) -> Recipe:
    return read_recipe(recipe, {"data.train": str(path), **changes})


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    ["lstm", pytest.param("transformer", marks=pytest.mark.slow), pytest.param("masked", marks=pytest.mark.slow)],
)
def test_a_run_on_ids_is_the_run_on_the_text(text: Path, tmp_path: Path, model: str) -> None:
    recipe = masked_recipe(text) if model == "masked" else tiny_recipe(text, model=model)
    prepare_corpus(recipe, tmp_path / "ids", shard_tokens=300)
    run_tiny(recipe, tmp_path / "on-text")
    run_tiny(on(recipe, tmp_path / "ids"), tmp_path / "on-ids")
    assert kept(tmp_path / "on-ids") == kept(tmp_path / "on-text")


def test_what_does_not_fit(text: Path, tmp_path: Path) -> None:
    recipe, ids = tiny_recipe(text), tmp_path / "ids"
    prepare_corpus(recipe, ids, shard_tokens=300)
    changed = on(recipe, ids, **{"tokenizer.kind": "bytes"})
    assert_refused(changed, tmp_path / "out", "prepared with tokenizer.kind = 'characters', the recipe has 'bytes'")
    (shard, *_) = sorted((ids / "train").iterdir())
    shard.unlink()
    assert_refused(on(recipe, ids), tmp_path / "out", f"^{shard}: a shard that cannot be read: No such file")
    with pytest.raises(RecipeError, match=r"^a classifier reads its texts itself; prepare is for"):
        prepare_corpus(classifying(text), tmp_path / "other")
    with pytest.raises(DataError, match=r"^no training text"):
        prepare_corpus(read_recipe("char-lstm"), tmp_path / "other")
