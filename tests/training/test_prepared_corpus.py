"""A run on prepared ids is bit-identical to the run on the text."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ensue.errors import DataError, RecipeError
from ensue.recipe import Recipe, read_recipe
from ensue.tasks.texts.corpus import prepare_corpus, read_corpus, training_characters
from training.tiny import assert_refused, reproducible_state, run_tiny, some_slow, tiny_recipe, words
from training.tiny_masked import masked_recipe
from training.tiny_texts import classifying


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("ensue.data.sources.CHUNK_CHARACTERS", 100)
    (tmp_path / "text.txt").write_text(words(800))
    return tmp_path / "text.txt"


def with_data(recipe: Recipe, path: Path, **changes: Any) -> Recipe:
    return read_recipe(recipe, {"data.train": str(path), **changes})


@pytest.mark.parametrize("model", some_slow(["lstm", "transformer", "masked"], "lstm"))
def test_a_run_on_ids_equals_the_run_on_the_text(text: Path, tmp_path: Path, model: str) -> None:
    recipe = masked_recipe(text) if model == "masked" else tiny_recipe(text, model=model)
    recipe = with_data(recipe, text, **{"data.valid_characters": 300})
    prepare_corpus(recipe, tmp_path / "ids", shard_tokens=300)
    run_tiny(recipe, tmp_path / "on-text")
    run_tiny(with_data(recipe, tmp_path / "ids"), tmp_path / "on-ids")
    assert reproducible_state(tmp_path / "on-ids") == reproducible_state(tmp_path / "on-text")


def test_each_character_is_in_training_or_validation_data(text: Path, tmp_path: Path) -> None:
    recipe, size = with_data(tiny_recipe(text), text, **{"data.valid_characters": 300}), len(text.read_text())
    data: Any = recipe.data
    assert data.valid_fraction * size > 300
    prepared = prepare_corpus(recipe, tmp_path / "ids", shard_tokens=300)
    corpus = read_corpus(data, recipe.tokenizer)  # type: ignore[attr-defined]
    for train, valid in ((corpus.train, corpus.valid), (prepared.tokens("train"), prepared.tokens("valid"))):
        assert (train.characters, valid.characters) == (size - 300, 300)  # type: ignore[union-attr]
    assert corpus.split == f"the last 300 characters of {text}"
    older: Any = SimpleNamespace(config={})
    newer: Any = SimpleNamespace(config={"training_characters": size - 300})
    assert training_characters(size, data, older) == int(size * (1 - data.valid_fraction))
    assert training_characters(size, data, newer) == size - 300


def test_prepared_data_that_do_not_match_are_refused(text: Path, tmp_path: Path) -> None:
    recipe, ids = tiny_recipe(text), tmp_path / "ids"
    prepare_corpus(recipe, ids, shard_tokens=300)
    changed = with_data(recipe, ids, **{"tokenizer.kind": "bytes"})
    assert_refused(changed, tmp_path / "out", "prepared with tokenizer.kind = 'characters', the recipe has 'bytes'")
    (shard, *_) = sorted((ids / "train").iterdir())
    shard.unlink()
    assert_refused(with_data(recipe, ids), tmp_path / "out", f"^{shard}: a shard that cannot be read: No such file")
    with pytest.raises(RecipeError, match=r"^a classifier does not read a stream of ids; prepare is for"):
        prepare_corpus(classifying(text), tmp_path / "other")
    with pytest.raises(DataError, match=r"^no training text"):
        prepare_corpus(read_recipe("char-lstm"), tmp_path / "other")
