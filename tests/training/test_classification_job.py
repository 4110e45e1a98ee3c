"""Training classifiers: every format, encoder and pooling; several labels; long texts; what is left; data of no use."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ensue
from ensue.errors import DataError, RecipeError
from ensue.pipeline import ClassificationPipeline
from ensue.recipe import ClassificationRecipe
from ensue.training.classification import ClassificationJob
from ensue.training.confusion_picture import draw_confusion
from training.resuming import At, Killed, assert_follows_its_seed, assert_resumes, die
from training.tiny import kept, run_tiny
from training.tiny_texts import (
    ENCODERS,
    FILLERS,
    TOPICS,
    Listener,
    Topical,
    classifying,
    documents,
    fasttext,
    first_word,
    folders,
    json_lines,
    pairs,
    quoted_csv,
    tsv,
)

TEXTS = documents(120)
ONE_WAY = {name: table | {"bidirectional": False} for name, table in ENCODERS.items() if name != "none"}


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    """Texts with one of three labels."""
    path = tmp_path / "topics.tsv"
    path.write_text(tsv(TEXTS))
    return path


def load(run: Path, **options: Any) -> ClassificationPipeline:
    pipeline = ensue.load(run, device="cpu", **options)
    assert isinstance(pipeline, ClassificationPipeline)
    return pipeline


def assert_same_scores(found: dict[str, Any], expected: dict[str, Any] | None) -> None:
    """All counts; the calibration error sums probabilities, which are rounded as their batch is."""
    assert expected is not None
    assert found.pop("calibration_error") == pytest.approx(expected["calibration_error"], abs=1e-6)
    assert found == {name: value for name, value in expected.items() if name != "calibration_error"}


def written(write: Callable[[list[Topical]], str], name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text(write(TEXTS), newline="")
        return folder / name

    return make


FORMATS: dict[str, Callable[[Path], Path]] = {
    "tsv": written(tsv, "a.tsv"),
    "csv": written(quoted_csv, "a.csv"),
    "json": written(json_lines, "a.jsonl"),
    "fasttext": written(fasttext, "a.txt"),
    "first-word": written(first_word, "a.txt"),
    "folders": lambda folder: folders(TEXTS, folder / "texts"),
}


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_is_learned(name: str, tmp_path: Path) -> None:
    path = FORMATS[name](tmp_path)
    listener = Listener()
    run_tiny(classifying(path, steps=20), tmp_path / "run", reporter=listener)
    pipeline = load(tmp_path / "run")
    assert pipeline.layout is not None
    assert pipeline.layout.format == name
    assert pipeline.labels.names == ("cooking", "music", "sports")
    assert not pipeline.labels.multiple
    assert listener.facts is not None
    assert listener.facts.data.startswith("96 texts of ")
    assert f"24 for validation; 3 labels ({name}" in listener.facts.data
    scores = pipeline.evaluate(path)
    assert (scores.examples, scores.accuracy > 0.9) == (120, True)


@pytest.mark.parametrize("encoder", list(ENCODERS))
def test_every_encoder_learns(encoder: str, topics: Path, tmp_path: Path) -> None:
    listener = Listener()
    slowly = {"learning_rate": 0.02, "steps": 60} if encoder == "transformer" else {}
    recipe = classifying(topics, encoder=encoder, **{"steps": 30} | slowly)
    run_tiny(recipe, tmp_path / "run", reporter=listener)
    losses = [report.loss for report in listener.steps]
    assert sum(losses[-3:]) < 0.7 * sum(losses[:3])
    assert load(tmp_path / "run").evaluate(topics).accuracy > 0.9


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention", "last mean max attention"])
def test_every_pooling_learns_alone_and_together(pooling: str, topics: Path, tmp_path: Path) -> None:
    recipe = classifying(topics, encoder="gru", head={"pooling": pooling.split(), "d_hidden": 8}, steps=30)
    run_tiny(recipe, tmp_path / "run")
    pipeline = load(tmp_path / "run")
    assert pipeline.model.head[1].in_features == 16 * len(pooling.split())
    assert pipeline.evaluate(topics).accuracy > 0.8


def test_a_bag_of_ngrams_learns_alone_and_beside_an_encoder(topics: Path, tmp_path: Path) -> None:
    bag = {"ngrams": 2, "ngram_buckets": 4096}
    for name, head in (("alone", {"pooling": []}), ("beside", {})):
        run_tiny(classifying(topics, encoder="none", head=bag | head), tmp_path / name)
        assert load(tmp_path / name).evaluate(topics).accuracy > 0.9


def test_heads_that_decide_by_nothing_or_do_not_go_together(topics: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="nothing to decide by"):
        run_tiny(classifying(topics, head={"pooling": []}), tmp_path / "run")
    (tmp_path / "pairs.tsv").write_text(pairs(40))
    with pytest.raises(RecipeError, match=r"head.ngrams reads single texts"):
        run_tiny(classifying(tmp_path / "pairs.tsv", head={"ngrams": 1}), tmp_path / "run")
    with pytest.raises(RecipeError, match="features: all are switched off"):
        run_tiny(classifying(topics, features={"d_words": 0}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_directory_has_all_that_a_classifier_is(
    topics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ensue.training.classification.draw_confusion", draw_confusion)
    test = tmp_path / "test.jsonl"
    test.write_text(json_lines(documents(30, seed=5)))
    outcome = run_tiny(classifying(topics, data={"test": str(test)}), tmp_path / "run")
    run = tmp_path / "run"
    assert {p.name for p in run.iterdir()} == {
        "recipe.toml", "config.json", "model.safetensors", "tokenizer.json", "labels.json", "metrics.jsonl",
        "README.md", "confusion.png", "checkpoints", ".lock",
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
    assert f"- validation: 20% of {topics}, drawn at random, 24 texts" in card
    assert "texts are read whole, in one piece" in card
    assert_same_scores(load(run).evaluate(test).as_json(), outcome.test)


def test_the_matrix_that_is_drawn_is_that_of_the_validation_data(
    topics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("ensue.training.classification.draw_confusion", lambda *args, **kwargs: drawn.append(args))
    outcome = run_tiny(classifying(topics, steps=2), tmp_path / "run")
    assert outcome.valid is not None
    ((labels, confusion, path),) = drawn
    assert labels == ["cooking", "music", "sports"]
    assert confusion == outcome.valid["confusion"]
    assert path == tmp_path / "run" / "confusion.png"


def test_pairs_are_read_as_pairs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(pairs(80))
    outcome = run_tiny(classifying(path, steps=5), tmp_path / "run")
    assert outcome.valid is not None
    pipeline = load(tmp_path / "run")
    assert pipeline.model.pair
    first, second, twice = pipeline.predict(
        [("salt and oven", "the choir"), ("the choir", "salt and oven"), ("the choir", "the choir")]
    )
    assert first.texts == ("salt and oven", "the choir")
    assert len({first.probability, second.probability, twice.probability}) == 3
    for wrong, found in ((["salt"], "1"), ([("salt",)], "1"), ([("a", "b", "c")], "3")):
        with pytest.raises(DataError, match=rf"the model reads pairs of texts; found {found}"):
            pipeline.predict(wrong)  # type: ignore[arg-type]
    assert pipeline.evaluate(path).examples == 80


@pytest.mark.parametrize("write", [fasttext, json_lines])
def test_several_labels_and_the_threshold_of_the_validation_data(
    write: Callable[[list[Topical]], str], tmp_path: Path
) -> None:
    suffix = "txt" if write is fasttext else "jsonl"
    path, valid = tmp_path / f"train.{suffix}", tmp_path / f"valid.{suffix}"
    path.write_text(write(documents(120, most_labels=3)))
    texts = documents(50, seed=1, most_labels=3)
    valid.write_text(write(texts))
    outcome = run_tiny(classifying(path, data={"valid": str(valid)}, steps=8), tmp_path / "run")
    pipeline = load(tmp_path / "run")
    assert pipeline.labels.multiple
    threshold = json.loads((tmp_path / "run" / "labels.json").read_text())["threshold"]
    answers = pipeline.predict([document.text for document in texts])

    def micro_f1(threshold: float) -> float:
        said = [{label for label, p in a.probabilities.items() if p >= threshold} for a in answers]
        right = sum(len(s & set(d.labels)) for s, d in zip(said, texts, strict=True))
        return 2 * right / (sum(map(len, said)) + sum(len(d.labels) for d in texts))

    for answer in answers:
        assert set(answer.labels) == {label for label, p in answer.probabilities.items() if p >= threshold}
        assert list(answer.labels) == sorted(answer.labels, key=lambda label: -answer.probabilities[label])
    best = max(micro_f1(p) for a in answers for p in a.probabilities.values())
    assert micro_f1(threshold) == pytest.approx(best)
    assert best > micro_f1(0.5) or abs(threshold - 0.5) < 0.2
    assert outcome.valid is not None
    assert outcome.valid["micro_f1"] == pytest.approx(best)
    assert_same_scores(pipeline.evaluate(valid).as_json(), outcome.valid)
    assert outcome.valid["confusion"] is None


def test_several_labels_of_a_column(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    rows = (f"{'; '.join(d.labels)}\t{d.text}\n" for d in documents(60, most_labels=2))
    path.write_text("label\ttext\n" + "".join(rows))
    run_tiny(classifying(path, data={"separator": ";"}, steps=2), tmp_path / "run")
    assert load(tmp_path / "run").labels.names == ("cooking", "music", "sports")
    run_tiny(classifying(path, data={"valid_fraction": 0.0}, steps=2), tmp_path / "joined")
    assert "cooking; music" in load(tmp_path / "joined").labels.names


def skewed(path: Path) -> Path:
    """The texts say nothing of the label; nine in ten have one of them."""
    path.write_text("label\ttext\n" + "".join(f"{'rare' if n % 10 == 0 else 'usual'}\tthe same\n" for n in range(100)))
    return path


@pytest.mark.parametrize(("weights", "expected"), [("none", 0.1), ("balanced", 0.5)])
def test_balanced_weights_make_a_rare_label_count_as_much(weights: str, expected: float, tmp_path: Path) -> None:
    recipe = classifying(
        skewed(tmp_path / "a.tsv"), encoder="none", head={"class_weights": weights}, data={"valid_fraction": 0.0},
        batch_size=100, batch_tokens=1000, steps=60,
    )  # fmt: skip
    run_tiny(recipe, tmp_path / "run")
    (answer,) = load(tmp_path / "run").predict(["the same"])
    assert answer.probabilities["rare"] == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(("weights", "expected"), [("none", [0.9, 0.1]), ("balanced", [0.5, 0.5])])
def test_balanced_weights_of_several_labels_make_yes_count_as_much_as_no(
    weights: str, expected: list[float], tmp_path: Path
) -> None:
    """A common and a rare label of texts that are all the same; one text has both, so that there are several."""
    labels = [["rare"], ["common", "rare"], *[["common"]] * 18]
    lines = [json.dumps({"text": "the same", "label": names}) for names in labels]
    (tmp_path / "a.jsonl").write_text("\n".join(lines * 5) + "\n")
    recipe = classifying(
        tmp_path / "a.jsonl", encoder="none", head={"class_weights": weights}, data={"valid_fraction": 0.0},
        batch_size=100, batch_tokens=1000, steps=60,
    )  # fmt: skip
    run_tiny(recipe, tmp_path / "run")
    (answer,) = load(tmp_path / "run").predict(["the same"])
    assert [answer.probabilities[name] for name in ("common", "rare")] == pytest.approx(expected, abs=0.07)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_label_smoothing_bounds_the_confidence(smoothing: float, topics: Path, tmp_path: Path) -> None:
    """The best probabilities on data that can be told apart are 1 - smoothing + smoothing / K."""
    recipe = classifying(topics, encoder="none", head={"label_smoothing": smoothing}, steps=120)
    run_tiny(recipe, tmp_path / "run")
    mean = np.mean([answer.probability for answer in load(tmp_path / "run").predict([d.text for d in TEXTS])])
    assert mean == pytest.approx(1 - smoothing + smoothing / 3, abs=0.05)


LONG = "salt the and we had a very good today choir again with goal"


@pytest.mark.parametrize(
    ("keep", "read"),
    [("start", "salt the and we had"), ("end", "today choir again with goal"), ("both", "salt the again with goal")],
)
def test_of_longer_texts_the_part_is_read_that_the_recipe_says(
    keep: str, read: str, topics: Path, tmp_path: Path
) -> None:
    listener = Listener()
    recipe = classifying(topics, data={"max_tokens": 5, "keep": keep}, steps=4)
    run_tiny(recipe, tmp_path / "run", reporter=listener)
    words = {"start": "the first", "end": "the last", "both": "the first and last"}[keep]
    assert listener.facts is not None
    longer, some = listener.facts.protocol.split(" of ")[0], listener.facts.protocol.partition("longer: ")[2]
    assert some == f"{words} 5 words are read"
    assert 0 < int(longer) < 96
    pipeline = load(tmp_path / "run")
    long, cut = pipeline.predict([LONG, read])
    assert long.probabilities == pytest.approx(cut.probabilities, abs=1e-6)
    assert pipeline.protocol(pipeline.evaluate(topics)) == f"of longer texts {words} 5 words are read"


@pytest.mark.parametrize("encoder", list(ONE_WAY))
def test_reading_in_segments_is_reading_whole(encoder: str, topics: Path, tmp_path: Path) -> None:
    """For layers that read in one direction: the same weights give the same probabilities."""
    head = {"pooling": ["last", "mean", "max", "attention"]}
    recipe = classifying(topics, encoder=ONE_WAY[encoder] | {"num_layers": 2}, head=head, steps=4)
    run_tiny(recipe, tmp_path / "whole")
    texts = [d.text for d in documents(40, seed=2, longest=40)]
    whole = load(tmp_path / "whole").predict(texts)
    for size in (1, 3, 100):
        run = Path(shutil.copytree(tmp_path / "whole", tmp_path / f"segments-{size}"))
        toml = (run / "recipe.toml").read_text()
        (run / "recipe.toml").write_text(toml.replace("segment_tokens = 0", f"segment_tokens = {size}"))
        pipeline = load(run)
        assert pipeline.model.segment == size
        for one, other in zip(whole, pipeline.predict(texts), strict=True):
            assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)


def test_a_model_is_trained_in_segments(topics: Path, tmp_path: Path) -> None:
    listener = Listener()
    recipe = classifying(topics, encoder=ONE_WAY["lstm"], data={"segment_tokens": 3}, steps=25)
    run_tiny(recipe, tmp_path / "run", reporter=listener)
    said = "texts are read whole, in segments of 3 words, state carried"
    assert listener.facts is not None
    assert listener.facts.protocol == said
    pipeline = load(tmp_path / "run")
    scores = pipeline.evaluate(topics)
    assert scores.accuracy > 0.9
    assert pipeline.protocol(scores) == said


def test_both_directions_cannot_carry_a_state(topics: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"only layers that read in one direction .* set model.bidirectional=false"):
        run_tiny(classifying(topics, data={"segment_tokens": 3}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


VARIANTS: dict[str, dict[str, Any]] = {
    "lstm": {
        "encoder": ENCODERS["lstm"] | {"dropout": 0.3, "dropout_kind": "variational", "dropout_input": 0.2},
        "features": {"dropout_words": 0.2, "characters": "cnn", "d_characters": 4},
        "head": {"dropout": 0.2, "d_hidden": 4, "class_weights": "balanced"},
        "accumulate": 2, "weight_decay": 0.1,
    },
    "segments": {"encoder": ONE_WAY["gru"], "data": {"segment_tokens": 3}},
    "ngrams": {"encoder": "none", "head": {"ngrams": 2, "ngram_buckets": 512}},
}  # fmt: skip


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_interrupted_killed_and_resumed_ends_in_the_same_bits(variant: str, topics: Path, tmp_path: Path) -> None:
    recipe = classifying(topics, **VARIANTS[variant], checkpoint_every=5, validations=2)
    assert_resumes(recipe, tmp_path)


def test_a_finished_run_of_several_labels_resumed_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(fasttext(documents(60, most_labels=2)))
    run_tiny(classifying(path, steps=3), tmp_path / "run")
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").glob("*.json")}
    run_tiny(None, tmp_path / "run", resume=True)
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").glob("*.json")} == before


def test_the_same_seed_is_the_same_run_and_another_is_another(topics: Path, tmp_path: Path) -> None:
    assert_follows_its_seed(lambda seed: classifying(topics, seed=seed, **VARIANTS["lstm"]), tmp_path)


def test_pretrained_vectors_are_kept_and_looked_up(tmp_path: Path) -> None:
    """Here the vectors say the topic, so that words that training had not are understood with the file alone."""
    number = {topic: place for place, topic in enumerate(TOPICS)}
    vectors = tmp_path / "vectors.txt"
    rows = [(word, number[topic]) for topic, words in TOPICS.items() for word in words]
    rows += [(f"{topic}-word", place) for topic, place in number.items()]
    vectors.write_text("".join(f"{word} {' '.join('1' if n == k else '0' for n in range(3))}\n" for word, k in rows))
    path = tmp_path / "a.tsv"
    path.write_text(tsv(TEXTS))
    recipe = classifying(
        path, encoder="none", features={"vectors": str(vectors), "d_words": 0}, steps=40, learning_rate=0.3
    )
    run_tiny(recipe, tmp_path / "run")
    new = [f"the {topic}-word" for topic in TOPICS]
    assert [a.label for a in load(tmp_path / "run", vectors=vectors).predict(new)] == list(TOPICS)
    plain = load(tmp_path / "run")
    assert len({a.label for a in plain.predict(new)}) == 1
    assert plain.model.features.vectors is not None
    assert len(plain.model.features.vectors.weight) == 1 + sum(map(len, TOPICS.values()))
    with pytest.raises(Killed):
        run_tiny(recipe, tmp_path / "parts", reporter=At(2, die))
    run_tiny(None, tmp_path / "parts", resume=True)
    assert kept(tmp_path / "parts") == kept(tmp_path / "run")


def test_validation_texts_are_drawn_at_random_and_the_same_for_every_seed(tmp_path: Path) -> None:
    """Files are often sorted by label, so that their last part has one label alone."""
    path = tmp_path / "sorted.tsv"
    path.write_text("label\ttext\n" + "".join(f"{'AB'[n // 20]}\tword{n} end\n" for n in range(40)))
    found = []
    for seed in (0, 1):
        job = ClassificationJob(classifying(path, seed=seed, data={"valid_fraction": 0.25}))
        assert job.valid is not None
        assert {labels[0] for labels in job.valid.labels} == {"A", "B"}
        parts = [{word for word in part.texts[0].words.values if word != "end"} for part in (job.train, job.valid)]
        assert parts[0] | parts[1] == {f"word{n}" for n in range(40)}
        assert (len(parts[0]), len(parts[1])) == (30, 10)
        for part in (job.train, job.valid):
            words = [part.texts[0].words.values[id] for id in part.texts[0].words.ids[::2]]
            assert [("AB"[int(word[4:]) // 20],) for word in words] == part.labels
        found.append(parts)
    assert found[0] == found[1]


def test_a_label_that_training_never_had_is_wrong_and_reported(topics: Path, tmp_path: Path) -> None:
    texts = documents(30, seed=3)
    other = tmp_path / "other.tsv"
    other.write_text(tsv([d._replace(labels=["history"]) if n % 3 == 0 else d for n, d in enumerate(texts)]))
    listener = Listener()
    recipe = classifying(topics, data={"valid": str(other), "test": str(other)}, steps=20)
    outcome = run_tiny(recipe, tmp_path / "run", reporter=listener)
    for scores in (outcome.valid, outcome.test, load(tmp_path / "run").evaluate(other).as_json()):
        assert scores is not None
        assert scores["unknown_labels"] == {"history": 10}
        assert scores["per_label"]["history"]["recall"] == 0
        assert 0.5 < scores["accuracy"] <= 20 / 30
    assert listener.facts is not None
    for what in ("validation", "test"):
        assert f"training has no history: wrong wherever the {what} data have it" in listener.facts.notes


def test_a_label_with_one_text_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(tsv(TEXTS) + "lonely\tonce and never again\n")
    listener = Listener()
    run_tiny(classifying(path, data={"valid_fraction": 0.0}, steps=1), tmp_path / "run", reporter=listener)
    assert listener.facts is not None
    assert "only one text to learn the label from: lonely" in listener.facts.notes
    assert "lonely" in load(tmp_path / "run").labels.names


@pytest.mark.parametrize("encoder", list(ENCODERS))
def test_texts_without_words_are_learned_and_answered(encoder: str, tmp_path: Path) -> None:
    """They come in batches of their own and among others."""
    path = tmp_path / "a.csv"
    path.write_text(
        "label,text\n" + "".join(f"{d.labels[0]},{d.text if n % 4 else ' '}\n" for n, d in enumerate(TEXTS))
    )
    listener = Listener()
    head = {"pooling": ["last", "mean", "max", "attention"], "ngrams": 1, "ngram_buckets": 64}
    run_tiny(classifying(path, encoder=encoder, head=head, epochs=1), tmp_path / "run", reporter=listener)
    assert listener.facts is not None
    assert any(note.endswith(" texts are empty") for note in listener.facts.notes)
    pipeline = load(tmp_path / "run")
    empty, full, blank = pipeline.predict(["", "salt", " \n"])
    assert empty.probabilities == blank.probabilities != full.probabilities
    assert pipeline.predict([""])[0].probabilities == pytest.approx(empty.probabilities, abs=1e-6)
    assert pipeline.evaluate(path).examples == 120


def table(*rows: str) -> str:
    return "label\ttext\n" + "".join(f"{row}\n" for row in rows)


USELESS: dict[str, tuple[str, bytes, dict[str, Any], str]] = {
    "one class": ("a.tsv", table(*["x\tthe text"] * 9).encode(), {}, 'nothing to learn: all 7 texts have the label'),
    "no label": ("a.txt", b"The first text.\nAnother text, and no label.\n", {}, "no labels found; --set data.format="),
    "an empty label": ("a.tsv", table("x\tone text", "\tanother", "y\tthird").encode(), {}, r"a.tsv:3: no label in"),
    "no label in fasttext": ("a.ft", b"__label__x one\nno label\n", {}, r"a.ft:2: no label"),
    "ragged": ("a.tsv", table("x\tone", "y", "x\tthree").encode(), {}, r"a.tsv:3: 1 column; expected 2 as in line 1"),
    "a quote left open": ("a.csv", b'label,text\nx,"one\ny,two\n', {}, r"a.csv:2: the quote that opens here is not"),
    "latin-1": ("a.tsv", table("x\tone", "y\tcaf\xe9").encode("latin-1"), {}, r"a.tsv:3: not UTF-8 \(byte 0xe9 in col"),
    "NUL": ("a.tsv", table("x\tone", "y\ttw\0o").encode(), {}, r"a.tsv:3: a NUL character in column 5"),
    "empty": ("a.tsv", b"", {}, "a.tsv: "),
    "header alone": ("a.tsv", b"label\ttext\n", {"header": "yes"}, "a.tsv: no text in it"),
    "no such column": ("a.tsv", tsv(TEXTS).encode(), {"labels": "lable"}, 'no "lable"; did you mean "label"'),
    "no such encoding": ("a.tsv", tsv(TEXTS).encode(), {"encoding": "utf-9"}, 'unknown encoding "utf-9"'),
    "json cut": ("a.jsonl", json_lines(TEXTS[:3]).encode() + b'{"te', {}, r"a.jsonl:4: not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(USELESS))
def test_data_of_no_use_are_one_line_with_their_place(name: str, tmp_path: Path) -> None:
    file, content, data, expected = USELESS[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=expected) as caught:
        run_tiny(classifying(tmp_path / file, data=data), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_texts_that_are_all_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("label,text\n" + "x,\ny,\n" * 20)
    with pytest.raises(DataError, match=r"a.csv: nothing to learn: no text has a word"):
        run_tiny(classifying(path, data={"labels": "label", "texts": ["text"]}), tmp_path / "run")


@pytest.mark.parametrize("part", ["valid", "test"])
def test_validation_and_test_data_must_be_of_the_same_kind(part: str, topics: Path, tmp_path: Path) -> None:
    several = tmp_path / "several.txt"
    several.write_text("__label__music a chord\n__label__music __label__sports a race\n")
    both, lines = tmp_path / "both.tsv", tmp_path / "lines.txt"
    both.write_text(pairs(40))
    lines.write_text(first_word(TEXTS))
    for train, other, expected in (
        (topics, several, r"several.txt:2: several labels \(music, sports\); a text of the training data has one"),
        (lines, both, r"both.tsv:2: the model reads single texts; found 2"),
        (both, lines, r"lines.txt:1: the model reads pairs of texts; found 1"),
        (topics, both, r'both.tsv:1: no "text"; there are "sentence1", "sentence2", "label"'),
    ):
        with pytest.raises(DataError, match=expected):
            run_tiny(classifying(train, data={part: str(other)}), tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_several_labels_in_the_part_for_validation_alone(tmp_path: Path) -> None:
    """Wherever they are drawn to, the file's texts may have several labels."""
    for place in range(10):
        labels = [["x"], ["y"]] * 5
        labels[place] = ["x", "y"]
        path = tmp_path / f"{place}.txt"
        path.write_text(fasttext([Topical(f"text {n}", found) for n, found in enumerate(labels)]))
        assert ClassificationJob(classifying(path, data={"valid_fraction": 0.5})).labels.multiple


def test_a_text_of_ten_thousand_words_among_short_ones(tmp_path: Path) -> None:
    choose = random.Random(0)
    words = choose.choices([*FILLERS, *TOPICS["music"]], k=10_000)
    path = tmp_path / "long.tsv"
    path.write_text(tsv([*TEXTS[:20], Topical(" ".join(words), ["music"]), *TEXTS[20:]]))
    recipe = classifying(path, encoder="window", head={"pooling": ["attention", "last"]}, data={"valid_fraction": 0.0})
    task = ClassificationJob(recipe).task
    shapes = [task.batch(step, torch.device("cpu")).texts[0].numbers.shape for step in range(task.steps_per_epoch)]
    assert shapes.count((1, 10_000)) == 1
    assert all(rows * length <= 200 for rows, length in shapes if length < 10_000)
    run_tiny(recipe, tmp_path / "run")
    pipeline = load(tmp_path / "run")
    long = " ".join(words)
    together = pipeline.predict(["salt", long, "a race"])
    assert pipeline.predict([long])[0].probabilities == pytest.approx(together[1].probabilities, abs=1e-6)
    one_piece = " ".join(["salt" * 250_000, "oven"])
    assert len(pipeline.predict([one_piece])) == 1


def test_recipes_know_nothing_of_other_tables(topics: Path) -> None:
    with pytest.raises(RecipeError, match="columns"):
        classifying(topics, features={"columns": ["2"]})
    recipe = classifying(topics)
    assert isinstance(recipe, ClassificationRecipe)
