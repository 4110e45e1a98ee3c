"""Pretrained vectors in training: which are stored, whether they are trained, and resumed runs."""

from pathlib import Path
from typing import Any

import pytest
import torch

import ensue
from ensue.errors import DataError, RunError
from ensue.runs.weights import read_tensors
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.labeling.recipe import LabelingRecipe
from training.resuming import At, Killed, die
from training.tiny import run_tiny
from training.tiny_texts import MEANINGS, tagging, vector_file


def load(run: Path, **options: Any) -> LabelingPipeline:
    return ensue.load(run, device="cpu", **options, kind=LabelingPipeline)


def with_vectors(folder: Path, **features: Any) -> LabelingRecipe:
    data, vectors = vector_file(folder)
    return tagging(
        data, encoder="none", features={"vectors": str(vectors), "d_words": 0, "kept_vectors": 0} | features, steps=20,
        learning_rate=0.5,
    )  # fmt: skip


def vectors_of(run: Path) -> dict[str, list[float]]:
    pipeline = load(run)
    known, table = pipeline.reader.lexicon.vectors, pipeline.model.features.vectors
    assert known is not None
    assert table is not None
    return dict(zip(known.symbols, table.weight.tolist(), strict=True))


def test_frozen_vectors_equal_the_file_and_only_words_of_the_data_are_stored(tmp_path: Path) -> None:
    run_tiny(with_vectors(tmp_path), tmp_path / "run")
    expected = {f"{kind}{number}": list(numbers) for kind, numbers in MEANINGS.items() for number in range(10)}
    assert vectors_of(tmp_path / "run") == {"<unk>": [0.0, 0.0, 0.0]} | expected
    assert len(read_tensors(tmp_path / "run" / "model.safetensors")["features.vectors.weight"]) == 21
    assert load(tmp_path / "run").evaluate(tmp_path / "kinds.txt").accuracy == 1.0


def test_vectors_of_validation_and_test_words_are_stored(tmp_path: Path) -> None:
    recipe = with_vectors(tmp_path)
    (tmp_path / "valid.txt").write_text("Verb15 verb\nnoun1 noun\n")
    (tmp_path / "test.txt").write_text("noun17 noun\nverb1 verb\n")
    data = recipe.data.model_copy(update={"valid": str(tmp_path / "valid.txt"), "test": str(tmp_path / "test.txt")})
    outcome = run_tiny(recipe.model_copy(update={"data": data}), tmp_path / "run")
    assert vectors_of(tmp_path / "run").keys() == {
        "<unk>", "verb15", "noun17", *(f"{kind}{number}" for kind in MEANINGS for number in range(10)),
    }  # fmt: skip
    assert outcome.valid is not None
    assert outcome.test is not None
    assert (outcome.valid["accuracy"], outcome.test["accuracy"]) == (1.0, 1.0)


def test_trained_vectors_change(tmp_path: Path) -> None:
    run_tiny(with_vectors(tmp_path, train_vectors=True), tmp_path / "run")
    vectors = vectors_of(tmp_path / "run")
    assert vectors.keys() == {"<unk>", *(f"{kind}{number}" for kind in MEANINGS for number in range(10))}
    assert all(vectors[word] != list(MEANINGS[word[:4]]) for word in vectors if word != "<unk>")


def test_new_words_are_looked_up_in_the_file(tmp_path: Path) -> None:
    run_tiny(with_vectors(tmp_path), tmp_path / "run")
    words = ["Noun15", "verb16", "noun17", "Verb18", "verb1"]
    plain = load(tmp_path / "run").predict([words])[0]
    looked_up = load(tmp_path / "run", vectors=tmp_path / "vectors.txt")
    assert [w.label for w in looked_up.predict([words])[0]] == ["noun", "verb", "noun", "verb", "verb"]
    assert plain.labels != ["noun", "verb", "noun", "verb", "verb"]
    # single words, most of which are cached
    assert [looked_up.predict([[word]])[0].labels[0] for word in words] == ["noun", "verb", "noun", "verb", "verb"]


def test_kept_vectors_stores_the_first_other_words_of_the_file(tmp_path: Path) -> None:
    """They follow those of the data, in half precision; other words are looked up in the file."""
    run_tiny(with_vectors(tmp_path, kept_vectors=17), tmp_path / "run")
    pipeline = load(tmp_path / "run")
    lexicon, features = pipeline.reader.lexicon, pipeline.model.features
    assert lexicon.vectors is not None
    assert lexicon.vectors.symbols[-7:] == tuple(f"noun{number}" for number in range(10, 17))
    assert (lexicon.kept_vectors, len(features.vectors.weight), features.kept_vectors.dtype) == (7, 21, torch.float16)
    words = ["Noun15", "noun16", "noun17"]
    assert pipeline.predict([words])[0].labels[:2] == ["noun", "noun"]
    assert pipeline.lacking() == ("1 of 3 words (33%) have no pretrained vector, neither in the run nor with --vectors")
    known, looked_up = pipeline.reader.memory, load(tmp_path / "run", vectors=tmp_path / "vectors.txt")
    assert looked_up.predict([words])[0].labels == ["noun"] * 3
    assert looked_up.lacking() == ""
    vectors, rows = looked_up.reader.read([words, ["verb19", "noun3", "nothing"]])
    expected = [MEANINGS["noun"]] * 3 + [MEANINGS["verb"], MEANINGS["noun"], (0.0, 0.0, 0.0)]
    assert vectors.vectors[rows.values].tolist() == [list(row) for row in expected]
    assert known.features.looked_up is None


def test_vectors_of_another_size_or_of_no_word_are_refused(tmp_path: Path) -> None:
    recipe = with_vectors(tmp_path)
    run_tiny(recipe, tmp_path / "run")
    (tmp_path / "wide.txt").write_text("noun15 1 2 3 4\n")
    with pytest.raises(ensue.errors.EnsueError, match=r"wide.txt: vectors of 4 numbers; the model has 3"):
        load(tmp_path / "run", vectors=tmp_path / "wide.txt").predict([["noun15"]])
    (tmp_path / "vectors.txt").write_text("nothing 1 2 3\n")
    with pytest.raises(DataError, match=r"vectors.txt: has none of the 20 words of the data"):
        run_tiny(recipe, tmp_path / "another")
    assert not (tmp_path / "another").exists()
    with pytest.raises(DataError, match="no such file"):
        run_tiny(with_vectors(tmp_path, vectors=str(tmp_path / "none.txt")), tmp_path / "another")


def test_vectors_are_refused_by_a_model_without_pretrained_vectors(names: Path, tmp_path: Path) -> None:
    run_tiny(tagging(names, steps=1), tmp_path / "run")
    with pytest.raises(ensue.errors.EnsueError, match="trained without pretrained vectors"):
        load(tmp_path / "run", vectors=names)


def test_a_vector_file_is_read_again_only_before_the_first_checkpoint(tmp_path: Path) -> None:
    recipe = with_vectors(tmp_path)
    recipe = recipe.model_copy(update={"train": recipe.train.model_copy(update={"checkpoint_every": 2})})
    vectors = tmp_path / "vectors.txt"
    for step, name in ((1, "early"), (4, "late")):
        with pytest.raises(Killed):
            run_tiny(recipe, tmp_path / name, reporter=At(step, die))
    vectors.write_text("".join(vectors.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(RunError, match=r"early: .*vectors.txt has changed since this run began"):
        run_tiny(None, tmp_path / "early", resume=True)
    vectors.unlink()
    assert run_tiny(None, tmp_path / "late", resume=True).reason == "finished"
