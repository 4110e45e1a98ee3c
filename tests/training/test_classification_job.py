"""Training classifiers: heads, long texts, pretrained vectors, and files of the run."""

import json
from pathlib import Path
from typing import Any

import pytest

import ensue
from ensue.errors import RecipeError
from ensue.recipe import read_recipe
from ensue.tasks.contract.data_set import draw_confusion
from training import tiny_texts
from training.classifiers import TEXTS, assert_same_scores, load
from training.resuming import At, Killed, die
from training.tiny import reproducible_state, run_tiny


def test_heads_without_features_or_with_contradictions_are_refused(topics: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="a classifier needs a pooling or n-grams"):
        run_tiny(tiny_texts.classifying(topics, head={"pooling": []}), tmp_path / "run")
    with pytest.raises(RecipeError, match="all features are switched off"):
        run_tiny(tiny_texts.classifying(topics, features={"d_words": 0}), tmp_path / "run")
    with pytest.raises(
        RecipeError, match=r"only layers that read in one direction .* set directions.bidirectional=false"
    ):
        run_tiny(tiny_texts.classifying(topics, data={"segment_tokens": 3}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_directory_has_all_files_and_scores_of_a_classifier(
    topics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ensue.tasks.contract.data_set.draw_confusion", draw_confusion)
    test = tmp_path / "test.jsonl"
    test.write_text(tiny_texts.json_lines(tiny_texts.documents(30, seed=5)))
    outcome = run_tiny(tiny_texts.classifying(topics, data={"test": str(test)}), tmp_path / "run")
    run = tmp_path / "run"
    assert {p.name for p in run.iterdir()} == {
        "recipe.toml", "config.json", "model.safetensors", "tokenizer.json", "labels.json", "metrics.jsonl",
        "README.md", "confusion.png", "checkpoints", "manifest.json", ".lock",
    }  # fmt: skip
    assert (run / "confusion.png").read_bytes().startswith(b"\x89PNG")
    config = json.loads((run / "config.json").read_text())
    assert (config["task"], config["pair"], config["layout"]["format"]) == ("classification", False, "tsv")
    card = (run / "README.md").read_text()
    assert outcome.valid is not None
    assert outcome.test is not None
    for name, scores in (("validation", outcome.valid), ("test", outcome.test)):
        keys = ("accuracy", "macro_f1", "weighted_f1", "calibration_error")
        shares = " | ".join(f"{100 * scores[key]:.2f}" for key in keys)
        assert f"| {name} | {shares} | {scores['examples']} |" in card
    assert (outcome.valid["examples"], outcome.test["examples"]) == (24, 30)
    assert "of 3 labels (cooking, music, sports)" in card
    assert f"- validation: 20% of {topics}, drawn at random by class, 24 texts" in card
    assert "texts are read whole, in one piece" in card
    assert_same_scores(load(run).evaluate(test).as_json(), outcome.test)


LONG = "salt the and we had a very good today choir again with goal"


@pytest.mark.parametrize(
    ("keep", "read"),
    [
        pytest.param("start", "salt the and we had", marks=pytest.mark.slow),
        pytest.param("end", "today choir again with goal", marks=pytest.mark.slow),
        ("both", "salt the again with goal"),
    ],
)
def test_longer_texts_are_truncated_as_the_recipe_says(keep: str, read: str, topics: Path, tmp_path: Path) -> None:
    listener = tiny_texts.Listener()
    recipe = tiny_texts.classifying(topics, data={"max_tokens": 5, "keep": keep}, steps=4)
    run_tiny(recipe, tmp_path / "run", reporter=listener)
    words = {"start": "the first 5", "end": "the last 5", "both": "the first 2 and last 3"}[keep]
    assert listener.facts is not None
    longer, remainder = listener.facts.protocol.split(" of ")[0], listener.facts.protocol.partition("longer: ")[2]
    assert remainder == f"{words} words are read"
    assert 0 < int(longer) < 96
    pipeline = load(tmp_path / "run")
    long, cut = pipeline.predict([LONG, read])
    assert long.probabilities == pytest.approx(cut.probabilities, abs=1e-6)
    assert pipeline.protocol(pipeline.evaluate(topics)) == f"of longer texts {words} words are read"


def write_topics(folder: Path) -> tuple[Path, Path, list[str]]:
    """Write texts, and word vectors that encode topics. Return both files, and texts of new words with vectors."""
    number = {topic: place for place, topic in enumerate(tiny_texts.TOPICS)}
    rows = [(word, number[topic]) for topic, words in tiny_texts.TOPICS.items() for word in words]
    rows += [(f"{topic}-word", place) for topic, place in number.items()]
    (folder / "vectors.txt").write_text(
        "".join(f"{word} {' '.join('1' if n == k else '0' for n in range(3))}\n" for word, k in rows)
    )
    (folder / "a.tsv").write_text(tiny_texts.tsv(TEXTS))
    return folder / "a.tsv", folder / "vectors.txt", [f"the {topic}-word" for topic in tiny_texts.TOPICS]


def test_features_vectors_adds_vectors_of_a_run_or_file_to_a_linear_model(tmp_path: Path) -> None:
    """Words that no training text has get vectors, too. A run and a file with the same vectors give the same model."""
    path, vectors, new = write_topics(tmp_path)
    ensue.import_run(vectors, tmp_path / "words")

    def recipe(vectors: Path, **settings: Any) -> Any:
        return read_recipe("classify-linear", {"features.vectors": str(vectors), **settings}, train=str(path))

    answers = []
    for source, run in ((vectors, tmp_path / "by-file"), (tmp_path / "words", tmp_path / "by-run")):
        run_tiny(recipe(source), run)
        answers.append(load(run).predict(new))
    assert [answer.label for answer in answers[0]] == list(tiny_texts.TOPICS)
    assert [answer.probabilities for answer in answers[1]] == [answer.probabilities for answer in answers[0]]
    with pytest.raises(RecipeError, match=r"by-run is a classifier; expected a table of word vectors"):
        run_tiny(recipe(tmp_path / "by-run"), tmp_path / "other")
    for key, value in (("features.d_words", 8), ("encoder.kind", "lstm"), ("head.d_hidden", 4), ("head.dropout", 0.1)):
        with pytest.raises(RecipeError, match=r"no layers or features other than features\.vectors"):
            recipe(vectors, **{key: value})


@pytest.mark.slow
def test_words_unknown_to_training_are_looked_up_in_the_file_of_vectors(tmp_path: Path) -> None:
    """The vectors encode the topic; without the file the model does not know these words."""
    path, vectors, new = write_topics(tmp_path)
    features = {"vectors": str(vectors), "d_words": 0, "kept_vectors": 0}
    recipe = tiny_texts.classifying(path, encoder="none", features=features, steps=40, learning_rate=0.3)
    run_tiny(recipe, tmp_path / "run")
    assert [a.label for a in load(tmp_path / "run", vectors=vectors).predict(new)] == list(tiny_texts.TOPICS)
    plain = load(tmp_path / "run")
    assert len({a.label for a in plain.predict(new)}) == 1
    assert plain.model.features.vectors is not None
    assert len(plain.model.features.vectors.weight) == 1 + sum(map(len, tiny_texts.TOPICS.values()))
    with pytest.raises(Killed):
        run_tiny(recipe, tmp_path / "parts", reporter=At(2, die))
    run_tiny(None, tmp_path / "parts", resume=True)
    assert reproducible_state(tmp_path / "parts") == reproducible_state(tmp_path / "run")
