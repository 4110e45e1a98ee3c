"""Pipelines of trained classifiers: order, batches, probabilities, and files read and written."""

import csv
import io
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ensue.data.examples import Document
from ensue.errors import DataError, EnsueError, RecipeError
from ensue.library import load
from ensue.notices import Notice
from ensue.recipe import Recipe, read_recipe
from ensue.runs.directory import continuing_recipe
from ensue.tasks.classification import pipeline as module
from ensue.tasks.classification.pipeline import ClassificationPipeline, Classified
from training import tiny_texts
from training.tiny import run_tiny, some_slow
from written_files import write_file

POOL = [*tiny_texts.FILLERS, *(word for words in tiny_texts.TOPICS.values() for word in words), "unheard", "of"]
RUNS = ["lstm", "segments", "ngrams", "several", "transformer"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the classifiers that `trained` makes."""
    folder = tmp_path_factory.mktemp("classifiers")
    texts = tiny_texts.documents(120)
    (folder / "topics.tsv").write_text(tiny_texts.tsv(texts))
    (folder / "several.txt").write_text(tiny_texts.fasttext(tiny_texts.documents(120, most_labels=3)))
    (folder / "pairs.tsv").write_text(tiny_texts.pairs(60))
    return folder


def trained(run: Path) -> Path:
    """Train the classifier that the folder's name selects: `pairs` reads two texts, `several` has several labels."""
    if run.exists():
        return run
    folder = run.parent
    all_poolings = {"pooling": ["last", "mean", "max", "attention"]}
    one_way = tiny_texts.ENCODERS["gru"] | {"bidirectional": False}
    bag = all_poolings | {"ngrams": 2, "ngram_buckets": 256}
    recipes = {
        "lstm": tiny_texts.classifying(folder / "topics.tsv", head=all_poolings, features={"characters": "cnn"}),
        "segments": tiny_texts.classifying(
            folder / "topics.tsv", encoder=one_way, head=all_poolings, data={"segment_tokens": 4}
        ),
        "ngrams": tiny_texts.classifying(folder / "topics.tsv", encoder="window", head=bag),
        "several": tiny_texts.classifying(folder / "several.txt", head={"pooling": ["max"]}),
        "transformer": tiny_texts.classifying(folder / "topics.tsv", encoder="transformer", head=all_poolings),
        "pairs": tiny_texts.classifying(folder / "pairs.tsv", steps=3),
    }
    run_tiny(recipes[run.name], run)
    return run


def loaded(run: Path) -> ClassificationPipeline:
    return load(trained(run), device="cpu", kind=ClassificationPipeline)


@pytest.fixture(params=some_slow(RUNS, "segments", "several"))
def pipeline(request: pytest.FixtureRequest, runs: Path) -> ClassificationPipeline:
    return loaded(runs / request.param)


def mixed(count: int, *, seed: int = 0, longest: int = 60) -> list[str]:
    """Return texts of 0 to `longest` words, short texts more often."""
    choose = random.Random(seed)
    return [" ".join(choose.choices(POOL, k=int(choose.random() ** 2 * longest))) for _ in range(count)]


def test_probabilities_sum_to_one_unless_several_labels_are_possible(pipeline: ClassificationPipeline) -> None:
    multiple = pipeline.labels.multiple
    for answer in pipeline.predict(mixed(20, seed=1)):
        assert tuple(answer.probabilities) == pipeline.labels.names
        assert all(0 <= share <= 1 for share in answer.probabilities.values())
        if multiple:
            threshold = pipeline.labels.threshold
            assert set(answer.labels) == {name for name, p in answer.probabilities.items() if p >= threshold}
        else:
            assert sum(answer.probabilities.values()) == pytest.approx(1, abs=1e-5)
            assert answer.labels == (max(answer.probabilities, key=answer.probabilities.__getitem__),)


def test_labels_below_at_least_are_left_out(pipeline: ClassificationPipeline) -> None:
    texts = mixed(50, seed=2)
    answers = pipeline.predict(texts)
    minimum = sorted(answer.probability for answer in answers)[25]
    answers_at_least = pipeline.predict(texts, at_least=minimum)
    expected = [tuple(label for label in answer.labels if answer.probabilities[label] >= minimum) for answer in answers]
    assert [answer.labels for answer in answers_at_least] == expected
    assert () in expected
    assert any(expected)
    with pytest.raises(EnsueError, match="at_least is 2; expected a number from 0 to 1"):
        pipeline.predict(texts, at_least=2)


def test_a_stream_is_read_in_chunks(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = loaded(runs / "lstm")
    monkeypatch.setattr(module, "CHUNK_TEXTS", 50)
    read_ahead, num_read = [], 0

    def stream() -> Iterator[Document]:
        nonlocal num_read
        for number in range(200):
            num_read += 1
            yield Document((f"{POOL[number % len(POOL)]} the",))

    for answered, answer in enumerate(pipeline.classify(stream())):
        assert answer.document.texts[0].startswith(POOL[answered % len(POOL)])
        read_ahead.append(num_read - answered)
    assert (len(read_ahead), max(read_ahead)) == (200, 50)
    monkeypatch.setattr(module, "CHUNK_WORDS", 20)
    num_read, read_ahead = 0, []
    read_ahead = [num_read - answered for answered, _ in enumerate(pipeline.classify(stream()))]
    assert max(read_ahead) == 10


def test_pairs_and_single_texts_are_not_taken_for_each_other(runs: Path, tmp_path: Path) -> None:
    single, pair = loaded(runs / "lstm"), loaded(runs / "pairs")
    with pytest.raises(DataError, match="the model reads single texts; found 2: 'salt | oven'".replace("|", r"\|")):
        single.predict([("salt", "oven")])
    with pytest.raises(DataError, match="the model reads pairs of texts; found 1: 'salt'"):
        pair.predict(["salt"])
    with pytest.raises(DataError, match="the model reads pairs of texts; found 3"):
        pair.predict([("a", "b", "c")])  # type: ignore[list-item]
    assert pair.predict([("salt", "oven")])[0].texts == ("salt", "oven")
    (tmp_path / "lines.txt").write_text(tiny_texts.first_word(tiny_texts.documents(20)))
    with pytest.raises(DataError, match=r"lines.txt:1: the model reads pairs of texts; found 1"):
        pair.evaluate(tmp_path / "lines.txt")
    with pytest.raises(DataError, match=r"topics.tsv:1: no \"sentence1\""):
        pair.evaluate(runs / "topics.tsv")


def test_several_labels_are_refused_by_a_model_of_one_label(runs: Path, tmp_path: Path) -> None:
    path = write_file(tmp_path / "several.txt", "__label__music the choir\n__label__music __label__sports a race\n")
    with pytest.raises(DataError, match=r"several.txt:2: several labels \(music, sports\)"):
        loaded(runs / "lstm").evaluate(path)
    assert loaded(runs / "several").evaluate(path).examples == 2


def test_repr_is_short_and_describes_answer_and_pipeline(runs: Path) -> None:
    answer = Classified(("salt and oven",), ("cooking",), {"cooking": 0.875, "music": 0.125})
    assert repr(answer) == "'salt and oven': cooking 0.88"
    assert (answer.label, answer.probability) == ("cooking", 0.875)
    none = Classified(("x" * 90,), (), {"a": 0.25, "b": 0.125})
    assert repr(none) == f"'{'x' * 57}...': no label"
    assert (none.label, none.probability) == ("", 0.25)
    pipeline = loaded(runs / "lstm")
    parameters = f"{pipeline.num_parameters:,} parameters"
    assert repr(pipeline) == (
        f"ClassificationPipeline(lstm 1×8, {parameters}, Classes(cooking, music, sports), run={str(runs / 'lstm')!r})"
    )


def test_evaluate_scores_the_answers_of_predict(runs: Path, tmp_path: Path) -> None:
    texts = tiny_texts.documents(60, seed=8)
    path = write_file(tmp_path / "test.tsv", tiny_texts.tsv(texts))
    pipeline = loaded(runs / "lstm")
    answers = pipeline.predict([d.text for d in texts])
    scores = pipeline.evaluate(path)
    gold = [d.labels[0] for d in texts]
    assert scores.accuracy == np.mean([a.label == g for a, g in zip(answers, gold, strict=True)])
    assert scores.confusion is not None
    for row, right in enumerate(scores.labels):
        predicted = [a.label for a, g in zip(answers, gold, strict=True) if g == right]
        assert scores.confusion[row] == [predicted.count(label) for label in scores.labels]


def predicted_file(pipeline: ClassificationPipeline, path: Path, format: str = "") -> str:
    """Return what `ensue predict` writes, without the probabilities."""
    source = pipeline.source(path, format=format, is_labeled=False)
    return "".join(source.write(document, labels) for document, labels, *_ in pipeline.classify(source))


def json_without_label(text: str) -> list[dict[str, object]]:
    return [{k: v for k, v in json.loads(line).items() if k != "label"} for line in text.splitlines()]


def test_predictions_change_nothing_in_a_file_but_its_labels(runs: Path, tmp_path: Path) -> None:
    """All labels of the input are wrong; blank lines, line ends and other columns stay."""
    pipeline = loaded(runs / "lstm")
    texts = tiny_texts.documents(40, seed=6)
    right = [answer.label for answer in pipeline.predict([d.text for d in texts])]
    wrong = [
        tiny_texts.Topical(d.text, ["music" if label == "sports" else "sports"])
        for d, label in zip(texts, right, strict=True)
    ]
    expected = [tiny_texts.Topical(d.text, [label]) for d, label in zip(texts, right, strict=True)]
    for name, write in (
        ("a.tsv", tiny_texts.tsv), ("b.txt", tiny_texts.fasttext), ("c.txt", tiny_texts.first_word),
        ("d.jsonl", tiny_texts.json_lines),
        ("e.tsv", lambda texts: tiny_texts.tsv(texts).replace("\n", "\r\n")),
        ("f.tsv", lambda texts: tiny_texts.tsv(texts).removesuffix("\n")),
        ("g.txt", lambda texts: tiny_texts.fasttext(texts).replace("\n", "\n\n").removesuffix("\n")),
    ):  # fmt: skip
        path = write_file(tmp_path / name, write(wrong), newline="")
        format = "first-word" if write is tiny_texts.first_word else ""  # which is not detected
        assert predicted_file(pipeline, path, format) == write(expected), name


def test_quoted_line_breaks_survive(runs: Path, tmp_path: Path) -> None:
    pipeline = loaded(runs / "lstm")
    path, texts = tmp_path / "a.csv", tiny_texts.documents(20, seed=7)
    path.write_text(tiny_texts.quoted_csv(texts), newline="")
    out = predicted_file(pipeline, path)
    before, after = (list(csv.reader(io.StringIO(text, newline=""))) for text in (tiny_texts.quoted_csv(texts), out))
    assert [row[:2] for row in after] == [row[:2] for row in before]
    assert any("\n" in row[1] for row in after)
    assert [row[2] for row in after[1:]] == [a.label for a in pipeline.predict([row[1] for row in before[1:]])]
    assert re.sub(r",[a-z]+\r\n", ",\r\n", out) == re.sub(r",[a-z]+\r\n", ",\r\n", tiny_texts.quoted_csv(texts))


def test_several_labels_come_out_as_a_list(runs: Path, tmp_path: Path) -> None:
    pipeline, texts = loaded(runs / "several"), tiny_texts.documents(30, seed=5, most_labels=3)
    path = write_file(tmp_path / "a.jsonl", tiny_texts.json_lines(texts))
    out = predicted_file(pipeline, path)
    assert json_without_label(out) == json_without_label(tiny_texts.json_lines(texts))
    labels = [list(answer.labels) for answer in pipeline.predict([d.text for d in texts])]
    assert [json.loads(line)["label"] for line in out.splitlines()] == labels


def test_predictions_for_a_folder_have_a_line_for_each_file(runs: Path, tmp_path: Path) -> None:
    pipeline, texts = loaded(runs / "lstm"), tiny_texts.documents(12, seed=4)
    root = tiny_texts.folders(texts, tmp_path / "texts")
    lines = predicted_file(pipeline, root).splitlines()
    assert [line.split("\t")[0] for line in lines] == sorted(map(str, root.rglob("*.txt")))
    for line in lines:
        file, label = line.split("\t")
        assert pipeline.predict([Path(file).read_text()])[0].label == label


@pytest.fixture(scope="module")
def linear(runs: Path) -> Path:
    """A run of the recipe `classify-linear` on 40 texts."""
    run_tiny(linear_recipe(runs), runs / "linear")
    return runs / "linear"


def linear_recipe(runs: Path, name: str = "topics.tsv", **settings: object) -> Recipe:
    return read_recipe("classify-linear", {"data.train": str(runs / name), "head.ngram_buckets": 256, **settings})


def test_a_linear_classifier_learns_from_all_texts_and_is_scored_by_cross_validation(linear: Path) -> None:
    pipeline = load(linear, kind=ClassificationPipeline)
    texts = tiny_texts.documents(120)
    labels = [answer.label for answer in pipeline.predict([d.text for d in texts])]
    assert np.mean([[label] == d.labels for label, d in zip(labels, texts, strict=True)]) == 1
    records = map(json.loads, (linear / "metrics.jsonl").read_text().splitlines())
    (valid,) = (record for record in records if record["kind"] == "valid")
    assert valid["scores"]["examples"] == 120
    accuracy = valid["scores"]["accuracy"]
    assert 0.8 < accuracy <= 1
    share = (120 * accuracy + 1) / 122
    error = np.sqrt((1 / 5 + 1 / 4) * share * (1 - share) / 24)  # Nadeau & Bengio 2003: 5 folds of 24 texts
    assert valid["summary"].startswith(f"accuracy {100 * accuracy:.2f} ± {100 * error:.2f} %, macro F1")
    assert "the error in cross-validation is" in (linear / "README.md").read_text()


def test_the_threshold_of_several_labels_is_chosen_by_cross_validation(runs: Path) -> None:
    run_tiny(linear_recipe(runs, "several.txt"), runs / "several-linear")
    pipeline = load(runs / "several-linear", kind=ClassificationPipeline)
    assert pipeline.labels.threshold != 0.5
    scores = pipeline.evaluate(runs / "several.txt")
    assert scores.micro_f1 > 0.9


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"head.pooling": ["mean"]}, "head.solver"), ({"head.label_smoothing": 0.1}, "head.solver"),
        ({"head.dropout_ngrams": 0.1}, "head.solver"), ({"head.ngram_weights": "ratio"}, 'ngram_weights = "idf"'),
        ({"train.steps": 2}, "needs train.steps = 1"), ({"train.seconds": 60}, "needs train.steps = 1"),
        ({"train.average": 0.9}, "has train.average"), ({"train.learning_rate": 0.1}, "has train.learning_rate"),
        ({}, "at most 100"),
    ],
)  # fmt: skip
def test_a_solver_refuses_other_features_settings_and_too_many_texts(
    runs: Path, settings: dict[str, object], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ensue.tasks.classification.job.MAX_TEXTS", 100)
    with pytest.raises(RecipeError, match=problem):
        run_tiny(linear_recipe(runs, **settings), runs / "refused")


def test_a_linear_classifier_is_continued_only_with_the_old_data(linear: Path, tmp_path: Path) -> None:
    """The weights are solved anew, so without the old data the classifier would forget the old labels."""
    texts = [tiny_texts.Topical(f"bow string {n}", ["archery"]) for n in range(12)] + tiny_texts.documents(4)
    (tmp_path / "new.tsv").write_text(tiny_texts.tsv(texts))
    (tmp_path / "only.tsv").write_text(tiny_texts.tsv([*texts[:12], tiny_texts.Topical("a bar of gold", ["metals"])]))
    with pytest.warns(Notice, match="are read again"):
        recipe = continuing_recipe(linear, None, [], train=tmp_path / "new.tsv")
    run_tiny(recipe, tmp_path / "run")
    pipeline = load(tmp_path / "run", kind=ClassificationPipeline)
    old = tiny_texts.documents(40)
    answers = pipeline.predict([*(d.text for d in old), "bow string"])
    assert [[answer.label] for answer in answers] == [*(d.labels for d in old), ["archery"]]
    with pytest.warns(Notice, match="are not read again"):
        alone = continuing_recipe(linear, None, ["tuning.rehearse=false"], train=tmp_path / "only.tsv")
    with pytest.raises(RecipeError, match="no text has the label cooking, music, sports"):
        run_tiny(alone, tmp_path / "alone")
