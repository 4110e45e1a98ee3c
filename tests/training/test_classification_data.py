"""Training classifiers on various data: several labels, rare labels, empty texts, useless files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ensue.tasks.classification.job import ClassificationJob
from training import tiny_texts
from training.classifiers import TEXTS, assert_same_scores, load
from training.tiny import assert_refused, run_tiny, some_slow


@pytest.mark.slow
@pytest.mark.parametrize("write", some_slow([tiny_texts.fasttext, tiny_texts.json_lines], tiny_texts.json_lines))
def test_the_threshold_of_several_labels_maximizes_validation_micro_f1(
    write: Callable[[list[tiny_texts.Topical]], str], tmp_path: Path
) -> None:
    suffix = "txt" if write is tiny_texts.fasttext else "jsonl"
    path, valid = tmp_path / f"train.{suffix}", tmp_path / f"valid.{suffix}"
    path.write_text(write(tiny_texts.documents(120, most_labels=3)))
    texts = tiny_texts.documents(50, seed=1, most_labels=3)
    valid.write_text(write(texts))
    outcome = run_tiny(tiny_texts.classifying(path, data={"valid": str(valid)}, steps=8), tmp_path / "run")
    pipeline = load(tmp_path / "run")
    assert pipeline.labels.multiple
    threshold = json.loads((tmp_path / "run" / "labels.json").read_text())["threshold"]
    answers = pipeline.predict([document.text for document in texts])

    def micro_f1(threshold: float) -> float:
        predicted = [{label for label, p in a.probabilities.items() if p >= threshold} for a in answers]
        right = sum(len(s & set(d.labels)) for s, d in zip(predicted, texts, strict=True))
        return 2 * right / (sum(map(len, predicted)) + sum(len(d.labels) for d in texts))

    for answer in answers:
        assert set(answer.labels) == {label for label, p in answer.probabilities.items() if p >= threshold}
        assert list(answer.labels) == sorted(answer.labels, key=lambda label: -answer.probabilities[label])
    best = max(micro_f1(p) for a in answers for p in a.probabilities.values())
    assert micro_f1(threshold) == pytest.approx(best)
    assert best > micro_f1(0.5) or abs(threshold - 0.5) < 0.2
    assert outcome.valid is not None
    assert outcome.valid["micro_f1"] == pytest.approx(best)
    before = {"calibration_error": outcome.valid["calibration_error"]}  # the temperature is fitted after training
    assert_same_scores(pipeline.evaluate(valid).as_json() | before, outcome.valid)
    assert outcome.valid["confusion"] is None


RARE = [["rare"], *[["usual"]] * 9]
BOTH = [["rare"], ["usual", "rare"], *[["usual"]] * 18]
"""With several labels possible, balanced weights correspond to ten of twenty texts with the label."""


@pytest.mark.parametrize(
    ("labels", "weights", "rare", "usual"),
    [(RARE, "balanced", 0.5, 0.5), (BOTH, "balanced", 0.5, 0.5)],
)
def test_balanced_weights_give_rare_and_usual_labels_equal_probability(
    labels: list[list[str]], weights: str, rare: float, usual: float, tmp_path: Path
) -> None:
    """All texts are equal, so the probabilities are the weighted frequencies of labels."""
    lines = [json.dumps({"text": "the same", "label": names}) for names in labels]
    (tmp_path / "a.jsonl").write_text("\n".join(lines * (100 // len(lines))) + "\n")
    recipe = tiny_texts.classifying(
        tmp_path / "a.jsonl", encoder="none", head={"class_weights": weights}, data={"valid_fraction": 0.0},
        batch_size=100, batch_tokens=1000, steps=60,
    )  # fmt: skip
    run_tiny(recipe, tmp_path / "run")
    (answer,) = load(tmp_path / "run").predict(["the same"])
    assert [answer.probabilities[name] for name in ("rare", "usual")] == pytest.approx([rare, usual], abs=0.07)


def test_validation_texts_are_random_but_independent_of_the_seed(tmp_path: Path) -> None:
    """Files are often sorted by label, so their end has only one label."""
    path = tmp_path / "sorted.tsv"
    path.write_text("label\ttext\n" + "".join(f"{'AB'[n // 20]}\tword{n} end\n" for n in range(40)))
    parts_by_seed = []
    for seed in (0, 1):
        job = ClassificationJob(tiny_texts.classifying(path, seed=seed, data={"valid_fraction": 0.25}))
        assert job.split.valid is not None
        assert {labels[0] for labels in job.split.valid.labels} == {"A", "B"}
        both = job.split.train, job.split.valid
        parts = [
            {word for word in part.texts[0].words.values if word != "end"}
            for part in (job.split.train, job.split.valid)
        ]
        assert parts[0] | parts[1] == {f"word{n}" for n in range(40)}
        assert (len(parts[0]), len(parts[1])) == (30, 10)
        for part in both:
            words = [part.texts[0].words.values[id] for id in part.texts[0].words.ids[::2]]
            assert [("AB"[int(word[4:]) // 20],) for word in words] == [*part.labels]
        parts_by_seed.append(parts)
    assert parts_by_seed[0] == parts_by_seed[1]


def test_a_label_unknown_to_training_is_scored_as_wrong_and_reported(topics: Path, tmp_path: Path) -> None:
    texts = tiny_texts.documents(30, seed=3)
    other = tmp_path / "other.tsv"
    other.write_text(tiny_texts.tsv([d._replace(labels=["history"]) if n % 3 == 0 else d for n, d in enumerate(texts)]))
    listener = tiny_texts.Listener()
    recipe = tiny_texts.classifying(topics, data={"valid": str(other), "test": str(other)}, steps=20)
    outcome = run_tiny(recipe, tmp_path / "run", reporter=listener)
    for scores in (outcome.valid, outcome.test, load(tmp_path / "run").evaluate(other).as_json()):
        assert scores is not None
        assert scores["unknown_labels"] == {"history": 10}
        assert scores["per_label"]["history"]["recall"] == 0
        assert 0.5 < scores["accuracy"] <= 20 / 30
    assert listener.facts is not None
    for what in ("validation", "test"):
        assert f"training has no history, the label of 10 items of the {what} data" in listener.facts.notes


def test_a_label_with_one_text_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(tiny_texts.tsv(TEXTS) + "lonely\tonce and never again\n")
    listener = tiny_texts.Listener()
    run_tiny(tiny_texts.classifying(path, data={"valid_fraction": 0.0}, steps=1), tmp_path / "run", reporter=listener)
    assert listener.facts is not None
    assert "a label has only one text to learn from: lonely" in listener.facts.notes
    assert "lonely" in load(tmp_path / "run").labels.names


@pytest.mark.slow
@pytest.mark.parametrize("encoder", some_slow(tiny_texts.ENCODERS, "lstm", "none"))
def test_texts_without_words_are_trained_on_and_classified(encoder: str, tmp_path: Path) -> None:
    """Batches have only empty texts, or empty and other texts."""
    path = tmp_path / "a.csv"
    path.write_text(
        "label,text\n" + "".join(f"{d.labels[0]},{d.text if n % 4 else ' '}\n" for n, d in enumerate(TEXTS))
    )
    listener = tiny_texts.Listener()
    head = {"pooling": ["last", "mean", "max", "attention"], "ngrams": 1, "ngram_buckets": 64}
    run_tiny(tiny_texts.classifying(path, encoder=encoder, head=head, epochs=1), tmp_path / "run", reporter=listener)
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
    "one class": ("a.tsv", table("x\t1", "x\t2", "x\t3").encode(), {}, "nothing to learn: all 2 texts have the label"),
    "few texts": ("a.tsv", table(*["x\t1", "y\t2"] * 20).encode(), {},
                  'all 20 texts have the label "x", and only validation texts have y; 40 texts come from 2 sources'),
    "no label": ("a.txt", b"The first text.\nAnother text, and no label.\n", {}, "no labels found; set format "),
    "an empty label": ("a.tsv", table("x\tone text", "\tanother", "y\tthird").encode(), {}, r"a.tsv:3: no label in"),
    "empty texts": ("a.csv", b"label,text\n" + b"x,\ny,\n" * 20, {"labels": "label", "texts": ["text"]},
                    "a.csv: nothing to learn: no text has a word"),
    "header alone": ("a.tsv", b"label\ttext\n", {"header": "yes"}, "a.tsv: no texts"),
    "no such column": ("a.tsv", tiny_texts.tsv(TEXTS).encode(), {"labels": "lable"},
                       'no "lable"; did you mean "label"'),
    "json cut": ("a.jsonl", tiny_texts.json_lines(TEXTS[:3]).encode() + b'{"te', {}, r"a.jsonl:4: not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(USELESS))
def test_useless_data_are_errors_of_one_line_with_their_place(name: str, tmp_path: Path) -> None:
    file, content, data, expected = USELESS[name]
    (tmp_path / file).write_bytes(content)
    assert_refused(tiny_texts.classifying(tmp_path / file, data=data), tmp_path / "run", expected)


@pytest.mark.parametrize("part", ["valid", "test"])
def test_validation_and_test_data_must_be_of_the_same_kind(part: str, topics: Path, tmp_path: Path) -> None:
    several = tmp_path / "several.txt"
    several.write_text("__label__music a chord\n__label__music __label__sports a race\n")
    both, lines = tmp_path / "both.tsv", tmp_path / "lines.txt"
    both.write_text(tiny_texts.pairs(40))
    lines.write_text(tiny_texts.first_word(TEXTS))
    for train, other, expected in (
        (topics, several, r"several.txt:2: several labels \(music, sports\); a text of the training data has one"),
        (lines, both, r"both.tsv:2: the model reads single texts; found 2"),
        (both, lines, r"lines.txt:1: the model reads pairs of texts; found 1"),
        (topics, both, r'both.tsv:1: no "text"; there are "sentence1", "sentence2", "label"'),
    ):
        assert_refused(tiny_texts.classifying(train, data={part: str(other)}), tmp_path / "run", expected)


def test_a_text_of_several_labels_makes_the_model_one_of_several_labels(tmp_path: Path) -> None:
    """The text may be a validation text."""
    for place in range(10):
        labels = [["x"], ["y"]] * 5
        labels[place] = ["x", "y"]
        path = tmp_path / f"{place}.txt"
        path.write_text(tiny_texts.fasttext([tiny_texts.Topical(f"text {n}", names) for n, names in enumerate(labels)]))
        assert ClassificationJob(tiny_texts.classifying(path, data={"valid_fraction": 0.5})).parts.labels.multiple
