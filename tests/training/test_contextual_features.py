"""Taggers and classifiers with layers of other runs as features."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import ensue
from ensue.errors import EnsueError, RecipeError, RunError
from ensue.runs.directory import RunDirectory, origins_in
from ensue.training.run import begin_job
from training.contextual import features_of
from training.taggers import TAGGED
from training.tiny import run_tiny, some_slow
from training.tiny_texts import classifying, tagging

PLACES = {
    "input": features_of(Path(), at="input"),
    "behind the only layer": features_of(Path(), at="first-layer"),
    "both": features_of(Path(), at="both", layers=[0, -1], pooling="first"),
    "side by side": features_of(Path(), mix="concatenate", pooling="last"),
    "alone": features_of(Path()) | {"d_words": 0},
}


@pytest.mark.parametrize("place", some_slow(PLACES, "both"))
def test_a_tagger_needs_no_origin_after_training(place: str, origin: Path, names: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(origin, tmp_path / "origin"))
    recipe = tagging(names, features=PLACES[place] | {"contextual": [str(run)]})
    run_tiny(recipe, tmp_path / "run")
    sentences = [sentence.words for sentence in TAGGED[:20]]
    before = [sentence.labels for sentence in ensue.load(tmp_path / "run", device="cpu").predict(sentences)]
    shutil.rmtree(run)
    model = ensue.load(tmp_path / "run", device="cpu")
    assert [sentence.labels for sentence in model.predict(sentences)] == before
    assert [model.predict([words])[0].labels for words in sentences] == before
    assert model.evaluate(names).as_json() == ensue.load(tmp_path / "run", device="cpu").evaluate(names).as_json()
    (copied,) = origins_in(RunDirectory(tmp_path / "run"))
    assert copied.path == str(run)
    assert copied.sha256[:12] in (tmp_path / "run" / "README.md").read_text()
    page = model.inspect(sentences[0]).page
    assert f"run {run}" in page


@pytest.mark.parametrize(("at", "count", "is_late"), [("input", 1, False), ("first-layer", 1, True), ("both", 2, True)])
def test_contextual_features_are_added_by_the_recipe(
    at: str, count: int, is_late: bool, origin: Path, names: Path
) -> None:
    model: Any = begin_job(tagging(names, features=features_of(origin, at=at)), None).build_model()
    assert (len(model.features.contextual), model.features.d_late > 0) == (count, is_late)


BAD = {
    "no run": ({"contextual": ["nowhere"]}, RunError, "nowhere: no such run directory; an origin in the recipe is the"),
    "a layer too many": ({"contextual_layers": [3]}, RecipeError, r"masked has the layers 0 to 2; found 3"),
    "twice": ({"contextual": ["a", "a"]}, RecipeError, "features.contextual lists a run twice"),
    "no text": ({"contextual": "run"}, RecipeError, "features.contextual"),
    "behind what is not a layer": (
        {"contextual_at": "first-layer", "encoder": "transformer"}, RecipeError, "needs separate recurrent layers",
    ),
    "nothing at the input": (
        {"contextual_at": "first-layer", "d_words": 0}, RecipeError, "all features are switched off",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_invalid_recipes_are_errors_of_one_line(case: str, origin: Path, names: Path, tmp_path: Path) -> None:
    changes, kind, message = BAD[case]
    changes = features_of(origin) | changes
    encoder = changes.pop("encoder", "lstm")
    with pytest.raises(EnsueError, match=message) as caught:
        run_tiny(tagging(names, features=changes, encoder=encoder), tmp_path / "run")
    assert isinstance(caught.value, kind)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_run_without_contextual_vectors_is_refused(names: Path, tmp_path: Path) -> None:
    run_tiny(tagging(names, steps=2), tmp_path / "tagger")
    with pytest.raises(
        RecipeError, match="a run of a tagger, which gives no vectors of words in their sentences; expect"
    ):
        run_tiny(tagging(names, features=features_of(tmp_path / "tagger")), tmp_path / "run")
    with pytest.raises(EnsueError, match="is the same as"):
        run_tiny(tagging(names, features=features_of(tmp_path / "tagger")), tmp_path / "tagger", overwrite=True)
    assert (tmp_path / "tagger" / "config.json").exists()


def test_last_pooling_refuses_features_after_the_first_layer(origin: Path, topics: Path, tmp_path: Path) -> None:
    recipe = classifying(topics, features=features_of(origin, at="first-layer"), head={"pooling": ["last"]})
    with pytest.raises(RecipeError, match=r'head\.pooling = "last" with features'):
        run_tiny(recipe, tmp_path / "r")
