"""Several vectors for a word: two meanings of a word are separated, and runs resume to the same bits."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ensue
from ensue.data.mapped_file import TokenFile
from ensue.errors import RecipeError
from ensue.extensions.bidirectional.word_uses import UseContexts, cluster_centers, cluster_senses
from ensue.extensions.word_vectors.examples import LINE_END
from ensue.extensions.word_vectors.recipe import SensesTable
from ensue.recipe import Recipe, validate_recipe
from training.resuming import At, interrupt
from training.tiny import reproducible_state, run_tiny

TOPICS = (["salt", "oven", "butter", "onion", "flour"], ["piano", "choir", "rhythm", "violin", "chord"])


def recipe(folder: Path, senses: str = "", **vectors: Any) -> Recipe:
    document = {
        "task": "word-vectors",
        "data": {"train": str(folder / "text.txt")},
        "tokenizer": {"min_count": 2},
        "vectors": {"kind": "skip-gram", "d_words": 8, "window": 3, "subsample": 0.0, **vectors},
        "senses": {"from": senses, "most": 2, "words": 50} if senses else {},
        "train": {"epochs": 6, "batch_size": 150, "learning_rate": 0.2, "validations": 2},
    }
    return validate_recipe(document, where="tiny")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines of one topic each, all with the word "note"; a run with one vector per word, and a run with senses."""
    path, choose = tmp_path_factory.mktemp("senses"), random.Random(0)
    lines = ([*choose.choices(TOPICS[n % 2], k=3), "note", *choose.choices(TOPICS[n % 2], k=3)] for n in range(300))
    (path / "text.txt").write_text("".join(" ".join(line) + "\n" for line in lines), encoding="utf-8")
    run_tiny(recipe(path), path / "words")
    run_tiny(recipe(path, senses=str(path / "words")), path / "senses")
    return path


@pytest.mark.slow
def test_two_meanings_have_two_vectors(folder: Path) -> None:
    model = ensue.load(folder / "senses")
    assert {"note", "note_2"} <= set(model.words)
    near = [{neighbor.word for neighbor in model.neighbors(word, 3)} for word in ("note", "note_2")]
    topics = [next(topic for topic, words in enumerate(TOPICS) if neighbors <= {*words}) for neighbors in near]
    assert sorted(topics) == [0, 1]
    cooking, music = (["note", "note_2"][topics.index(topic)] for topic in (0, 1))
    assert model.sense_of(["butter", "note", "flour"], 1) == cooking
    assert model.sense_of(["violin", "note", "piano"], 1) == music
    assert model.sense_of(["violin", "note", "piano"], 0) == "violin"
    assert model.sense_of(["unheard", "note"], 1) == "note"


@pytest.mark.slow
def test_a_run_of_senses_resumes_without_its_origin_to_the_same_bits(folder: Path, tmp_path: Path) -> None:
    uninterrupted, resumed, origin = tmp_path / "whole", tmp_path / "parts", tmp_path / "origin"
    run_tiny(recipe(folder), origin)
    again = recipe(folder, senses=str(origin))
    run_tiny(again, uninterrupted)
    assert run_tiny(again, resumed, reporter=At(3, interrupt)).reason == "interrupted"
    origin.rename(tmp_path / "gone")
    run_tiny(None, resumed, resume=True)
    assert reproducible_state(uninterrupted) == reproducible_state(resumed)


def test_senses_with_ngrams_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"senses\.from, which is for cbow and skip-gram without n-grams"):
        recipe(Path(), senses="somewhere", longest_ngram=4)


def test_only_chosen_words_are_new_ids() -> None:
    ids = np.array([2, 5, 3, LINE_END, 4, 5, 2, LINE_END] * 30)
    vectors = np.zeros((6, 2), np.float32)
    vectors[2:5] = [[1, 0], [1, 0.1], [-1, 0.2]]
    vectors[2] = 0  # no direction
    contexts = UseContexts(vectors, np.bincount(ids), subsample=0, window=2, across_lines=False)
    counts = np.bincount(ids)
    senses = cluster_senses(TokenFile(ids), contexts, np.array([5]), counts, SensesTable(most=2), seed=0)
    assert senses.counts.tolist() == [2]
    new_ids = senses.replace_words(ids)
    np.testing.assert_array_equal(new_ids[ids != 5], ids[ids != 5])
    assert {frozenset(new_ids[1::8].tolist()), frozenset(new_ids[5::8].tolist())} == {frozenset({5}), frozenset({6})}


def test_the_centers_are_the_means_of_groups_that_lie_apart() -> None:
    angles = np.concatenate([np.full(8, 0.0), np.full(3, 2.0), np.full(1, 4.0)]) + np.linspace(0, 0.1, 12)
    vectors = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    centers = cluster_centers(vectors, SensesTable(most=3, least=0.2))  # a single vector is less than the least share
    center_angles = np.arctan2(centers[:, 1], centers[:, 0])
    np.testing.assert_allclose(center_angles, [angles[:8].mean(), angles[8:11].mean()], atol=1e-3)
