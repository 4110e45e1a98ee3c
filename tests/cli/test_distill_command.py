"""`ensue distill` trains a student on the probabilities of labels or tags that its teachers predict."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ensue as package
from command_fixtures import Ensue
from ensue.errors import DataError
from ensue.extensions.annotating.beginning import label_probabilities, propagate_labels
from ensue.extensions.annotating.teachers import principal_components, weights_by_frequency, write_student_data
from ensue.extensions.word_vectors.pipeline import WordVectorsPipeline
from ensue.library import load
from ensue.recipe import read_recipe
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.words.data import read_teacher_answers, soften
from ensue.training.run import begin_job
from kept_runs.make import unpacked
from training.tiny import run_tiny
from training.tiny_texts import classifying, columns, documents, first_word, pairs, sentences, tagging, tsv

pytestmark = pytest.mark.usefixtures("in_tmp_path")

Refused = Callable[..., str]
SMALL = [
    *("--set", "train.steps=3", "--set", "train.precision=float32", "--set", "train.validations=1"),
    *("--set", "head.ngram_buckets=500", "--threads", "1", "--device", "cpu"),
]


def lines(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def write_answers(path: str | Path, texts: Sequence[str], names: str, shares: NDArray[np.float64]) -> None:
    rows = [
        {"texts": [text], "probabilities": dict(zip(names, row, strict=True))}
        for text, row in zip(texts, shares.tolist(), strict=True)
    ]
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def drawn(count: int, seed: int, size: int = 3) -> NDArray[np.float64]:
    return np.random.default_rng(seed).dirichlet(np.ones(size), count)


def test_the_loss_is_the_expected_surprisal_of_the_labels() -> None:
    """The reference is -Σ p log q in NumPy, for texts with predictions, with two predictions, and without."""
    Path("data.tsv").write_text("label\ttext\nx\tone day\ny\ttwo days\nx\tthree\nz\tfour\n")
    shares = drawn(4, 0)
    write_answers("told.jsonl", ["one day", "two days", "three", "two days"], "xyz", shares)
    job: Any = begin_job(classifying(Path("data.tsv"), data={"teacher": "told.jsonl", "valid_fraction": 0.0}), None)
    model = job.build_model().eval()
    batch = job.task.batch_of(np.arange(4), torch.device("cpu"))
    with torch.no_grad():
        loss = model.loss(batch.texts, batch.targets)
        logits = model(batch.texts).double().numpy()
    surprisal = np.log(np.exp(logits).sum(1, keepdims=True)) - logits
    p = np.stack([shares[0], (shares[1] + shares[3]) / 2, shares[2], [0, 0, 1]])
    assert loss.total.item() == pytest.approx((p * surprisal).sum(), rel=1e-5)


def test_certain_predictions_train_the_same_weights_as_labels() -> None:
    """The weights are equal bit for bit."""
    texts = documents(40)
    Path("data.tsv").write_text(tsv(texts))
    names = sorted({text.labels[0] for text in texts})
    rows = [
        {"text": text.text, "probabilities": {name: float(name in text.labels) for name in names}} for text in texts
    ]
    Path("told.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, teacher in (("gold", ""), ("distilled", "told.jsonl")):
        run_tiny(classifying(Path("data.tsv"), data={"teacher": teacher}, steps=4), Path(name))
    assert Path("gold/model.safetensors").read_bytes() == Path("distilled/model.safetensors").read_bytes()


def test_targets_are_the_mean_of_the_teachers_and_the_label() -> None:
    """The reference is in NumPy: two teachers, a temperature, texts with labels, and texts of a pool without them."""
    Path("data.tsv").write_text("label\ttext\nx\tone day\ny\ttwo days\n")
    Path("pool.txt").write_text("three of them\nand four\n")
    texts, logits = (
        ["one day", "two days", "three of them", "and four"],
        np.random.default_rng(1).normal(size=(2, 4, 2)),
    )
    both = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    write_answers("a.jsonl", texts, "xy", both[0])
    write_answers("b.jsonl", texts[::-1], "xy", both[1][::-1])
    recipe = classifying(Path("data.tsv"))
    student = write_student_data(
        ["a.jsonl", "b.jsonl"], recipe, Path("out"), pool="pool.txt", gold=0.25, temperature=2.0
    )
    flat = np.exp(logits / 2)
    expected = (flat / flat.sum(-1, keepdims=True)).mean(0)
    expected[:2] = 0.75 * expected[:2] + 0.25 * np.eye(2)
    rows = lines(student.data.train)
    assert [row["text"] for row in rows] == texts
    assert [row["label"] for row in rows] == ["x", "y", *("xy"[best] for best in expected[2:].argmax(1))]
    assert np.allclose([[row["probabilities"][name] for name in "xy"] for row in rows], expected, atol=1e-6)


@pytest.mark.parametrize("task", ["classification", "labeling"])
def test_validation_has_gold_labels(task: str) -> None:
    """Validation texts beside a pool are not learned, and equal texts are in one part."""
    texts = [f"number {n // 2}" for n in range(20)]
    if task == "classification":
        Path("gold").write_text("label\ttext\n" + "".join(f"x\t{text}\n" for text in texts))
    else:
        Path("gold").write_text("".join(text.replace(" ", " x\n") + " x\n\n" for text in texts))
    Path("pool.txt").write_text("".join(f"pool {n}\n" for n in range(20)) + "number 3\n")
    every = [f"number {n}" for n in range(10)] + [f"pool {n}" for n in range(20)]
    shares = [{"x": 0.4, "y": 0.6}]
    rows = [
        {"texts": [text], "probabilities": shares[0]} if task == "classification" else
        {"tokens": text.split(), "probabilities": shares * 2}
        for text in every
    ]  # fmt: skip
    Path("told.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = (classifying if task == "classification" else tagging)(Path("gold"), data={"valid_fraction": 0.1})
    student = write_student_data(["told.jsonl"], recipe, Path("out"), pool="pool.txt")
    learned, held_out = lines(student.data.train), lines(student.data.valid)
    of = [[row.get("text") or " ".join(row["tokens"]) for row in part] for part in (learned, held_out)]
    assert (len(of[0]), len(of[1])) == (38, 2)
    assert not {*of[0]} & {*of[1]}
    assert sum(text.startswith("pool") for text in of[0]) == 20
    assert {json.dumps(row.get("label") or row["labels"]) for row in held_out} <= {'"x"', '["x", "x"]'}
    assert "with gold labels" in "".join(begin_job(student, None).data_lines())


def test_validation_data_beside_a_pool_have_each_class() -> None:
    labels = "x" * 60 + "y" * 30 + "z" * 10
    Path("gold").write_text("label\ttext\n" + "".join(f"{label}\tnumber {n}\n" for n, label in enumerate(labels)))
    Path("pool.txt").write_text("a pool\n")
    texts = [*(f"number {n}" for n in range(100)), "a pool"]
    write_answers("told.jsonl", texts, "xyz", drawn(len(texts), 0))
    student = write_student_data(
        ["told.jsonl"], classifying(Path("gold"), data={"valid_fraction": 0.1}), Path("out"), pool="pool.txt"
    )
    assert Counter(row["label"] for row in lines(student.data.valid)) == {"x": 6, "y": 3, "z": 1}


def test_a_pool_may_be_a_file_of_predictions_and_repeat_training_texts() -> None:
    """The file has any format, and a label weighs as much as without the pool."""
    Path("data.tsv").write_text("kind\treview\nx\tein Tag\ny\tzwei M\xe4rkte\n", encoding="latin-1")
    write_answers("told.jsonl", ["ein Tag", "zwei M\xe4rkte", "drei"], "xy", drawn(3, 4, 2))
    settings_of_run = {"texts": ["review"], "labels": "kind", "encoding": "latin-1"}
    recipe = classifying(Path("data.tsv"), data=settings_of_run)
    student = write_student_data(["told.jsonl"], recipe, Path("new/folder/out"), pool="told.jsonl", gold=1.0)
    rows = lines(student.data.train)
    assert [row["text"] for row in rows] == ["ein Tag", "zwei M\xe4rkte", "drei"]
    assert [row["probabilities"] for row in rows[:2]] == [{"x": 1, "y": 0}, {"x": 0, "y": 1}]


def test_softened_probabilities_are_positive_and_sum_to_1() -> None:
    shares = np.full((1, 2_001), 1 / 2_000)
    shares[0, 0] = 0
    softened = soften(shares, 0.01)
    assert softened[0, 0] == 0
    assert softened[0, 1:] == pytest.approx(1 / 2_000)


def assert_continues_without_its_teacher(ensue: Ensue, refused: Refused) -> None:
    """Assert that a student continues without its teachers, unless its data have changed."""
    shutil.rmtree("teacher")
    more = ["train", "--resume", "--out", "out", "--set", "train.steps=4"]
    assert ensue(*more).status == 0
    with open("out.taught-train.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(lines("out.taught-train.jsonl")[0]) + "\n")
    assert "out.taught-train.jsonl has changed since this run began" in refused(*more)


@pytest.mark.slow
@pytest.mark.parametrize("write", [pytest.param(tsv, marks=pytest.mark.slow), first_word])
def test_a_student_of_a_run_continues_without_it(write: Any, ensue: Ensue, refused: Refused, runs: Path) -> None:
    """Validation and test data have the format of the training data, and a pool is plain text."""
    shutil.copytree(runs / "topics", "teacher")
    for name, seed in (("train", 1), ("valid", 2), ("test", 3)):
        Path(name).write_text(write(documents(40, seed=seed)))
    Path("pool.txt").write_text("".join(text.text + "\n" for text in documents(20, seed=4)))
    held_out = ["--valid", "valid", "--test", "test"]
    data = ["--train", "train", "--pool", "pool.txt", *held_out]
    ensue("distill", "teacher", "classify-bag", *data, "--out", "out", *SMALL).succeeded()
    rows, pipeline = lines("out.taught-train.jsonl"), load("teacher", kind=ClassificationPipeline)
    assert [row["text"] for row in rows[:40]] == [text.text for text in documents(40, seed=1)]
    answer = pipeline.predict([rows[-1]["text"]])[0]
    assert rows[-1]["probabilities"] == pytest.approx(answer.probabilities, abs=1e-5)
    assert rows[-1]["label"] == answer.label
    assert load("out", kind=ClassificationPipeline).predict(["a text"])[0].label in pipeline.labels.names
    assert_continues_without_its_teacher(ensue, refused)


def test_a_student_learns_pairs_of_texts(ensue: Ensue, runs: Path) -> None:
    Path("pairs.tsv").write_text(pairs(30, seed=5))
    ensue("distill", runs / "pairs", "classify-pairs", "--train", "pairs.tsv", "--out", "out", *SMALL[:6]).succeeded()
    assert load("out", kind=ClassificationPipeline).num_texts == 2
    assert {*lines("out.taught-train.jsonl")[0]} == {"text1", "text2", "label", "probabilities"}


def test_a_label_that_is_never_the_best_is_learned(ensue: Ensue) -> None:
    Path("pool.txt").write_text("".join(f"{number} of a kind\n" for number in range(20)))
    texts = Path("pool.txt").read_text().splitlines()
    shares = np.where(np.arange(20)[:, None] % 2, [0.6, 0.2, 0.2], [0.2, 0.6, 0.2])
    write_answers("told.jsonl", texts, "xyz", shares)
    ensue("distill", "told.jsonl", "classify-bag", "--pool", "pool.txt", "--out", "out", *SMALL).succeeded()
    assert load("out", kind=ClassificationPipeline).labels.names == ("x", "y", "z")


def test_wrong_distillations_are_refused(refused: Refused, runs: Path) -> None:
    Path("data.tsv").write_text(tsv(documents(20)))
    names = {text.labels[0] for text in documents(20)}
    Path("told.jsonl").write_text(json.dumps({"text": "a", "probabilities": {name: 1 / len(names) for name in names}}))
    Path("wrong.tsv").write_text("label\ttext\nnone\ta b\nnone\tc d\n")
    copied_run = shutil.copytree(runs / "topics", "own")
    Path("texts").mkdir()
    cases: list[tuple[list[object], str]] = [
        (["classify-bag", "--train", "data.tsv"], "Missing argument"),
        ([runs / "topics", "char-lstm", "--train", "data.tsv"], "expected the recipe of a text classifier or"),
        ([runs / "names", "classify-bag", "--train", "data.tsv"], "the model is a tagger"),
        ([runs / "several", "classify-bag", "--train", "data.tsv"], "a multi-label classifier; expected"),
        ([runs / "topics", "classify-bag"], "no training texts; give labeled texts with --train"),
        ([runs / "topics", "classify-bag", "--train", "wrong.tsv"], "wrong.tsv:2: the label none; expected one of"),
        (
            ["told.jsonl", "classify-bag", "--train", "data.tsv"],
            "data.tsv:2: told.jsonl has no prediction for this text",
        ),
        ([copied_run, "classify-bag", "--train", "data.tsv", "--out", "own", "--overwrite"], "own: is the same as own"),
        (["out.taught-train.jsonl", "classify-bag", "--train", "data.tsv"], "train.jsonl: no such run"),
        ([runs / "topics", "classify-bag", "--train", "data.tsv", "--out", "own"], "own: exists"),
        (["none", "classify-bag", "--train", "data.tsv"], "none"),
        (["told.jsonl", "classify-bag", "--train", "data.tsv", "--test", "no.tsv"], "no.tsv: no such file"),
        (["told.jsonl", "classify-bag", "--train", "data.tsv", "--out", "."], ".: contains data.tsv, which is read"),
        (
            ["told.jsonl", "classify-bag", "--pool", "texts", "--out", "texts/out"],
            "texts/out: is inside of texts, which is read",
        ),
    ]
    before = sorted(path.name for path in Path().iterdir())
    for arguments, expected in cases:
        out = [] if "--out" in arguments else ["--out", "out"]
        assert expected in refused("distill", *arguments, *out, "--device", "cpu")
        assert sorted(path.name for path in Path().iterdir()) == before


def test_predictions_that_do_not_fit_the_training_data_are_refused(refused: Refused) -> None:
    Path("data.tsv").write_text(tsv(documents(20)))
    Path("several.jsonl").write_text('{"text": "a", "label": ["x", "y"]}\n{"text": "b", "label": ["y"]}\n')
    Path("told.jsonl").write_text('{"text": "nobody wrote this", "probabilities": {"x": 1}}\n')
    train = ["train", "classify-bag", "--set", "data.teacher=told.jsonl", "--out", "out", *SMALL, "--train"]
    assert "told.jsonl: contains none of the training texts" in refused(*train, "data.tsv")
    assert "told.jsonl: a teacher needs one label per text" in refused(*train, "several.jsonl")
    Path("told.jsonl").write_text(
        '{"text": "a", "probabilities": {"x": 1}}\n{"text": "a", "probabilities": {"x": 0.5}}'
    )
    assert "told.jsonl:2: the probabilities have the sum 0.5; expected 1" in refused(*train, "data.tsv")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.floats() | st.text(max_size=3) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=4,
)
SHARES = st.dictionaries(st.text(max_size=2), st.sampled_from([0, 0.5, 1, 1e-9]), max_size=3) | JSON
NAMES = st.sampled_from(["text", "texts", "text1", "text2", "tokens", "probabilities"])
OBJECTS = (
    st.dictionaries(NAMES, JSON, max_size=3)
    | st.fixed_dictionaries({"text": JSON, "probabilities": SHARES})
    | st.fixed_dictionaries({"tokens": st.lists(st.text(max_size=2)) | JSON, "probabilities": st.lists(SHARES)})
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(OBJECTS.map(json.dumps) | st.text(max_size=9), min_size=1, max_size=3), st.booleans())
def test_a_line_is_a_prediction_or_refused_with_its_line(tmp_path: Path, file_lines: list[str], by_word: bool) -> None:
    path = tmp_path / "told.jsonl"
    path.write_text("\n".join(file_lines), encoding="utf-8", errors="replace")
    try:
        answers = list(read_teacher_answers(path, by_word=by_word))
    except DataError as error:
        location = str(error)
    else:
        location, serialized = f"{path}:", json.dumps(answers, ensure_ascii=False)
        assert serialized.encode().decode() == serialized
        for answer in answers:
            assert by_word or 1 <= len(answer.texts) <= 2
            assert len(answer.probabilities) == (len(answer.texts) if by_word else 1)
            assert all(sum(shares.values()) == pytest.approx(1) for shares in answer.probabilities)
    assert location.startswith(f"{path}:")


def test_begin_trains_a_classifier_on_propagated_labels(ensue: Ensue, refused: Refused) -> None:
    """Labels of examples stay, and texts of the pool get the labels of their vectors."""
    unpacked("vectors-skipgram", Path())
    words = [word for word in load("vectors-skipgram", kind=WordVectorsPipeline).words if word.isalpha()]
    Path("few.tsv").write_text(f"label\ttext\nx\t{words[0]} {words[1]}\n7\t{words[2]} {words[3]}\nx\t{words[4]}\n")
    Path("pool.txt").write_text("".join(f"{' '.join(words[n : n + 3])}\n" for n in [*range(len(words)), 0, 1]) + "\n")
    begin = ["begin", "few.tsv", "pool.txt", "--vectors", "vectors-skipgram", "--out", "out", "--count", "8", *SMALL]
    ensue(*begin).succeeded()
    rows = lines("out.begun.jsonl")
    assert [row["probabilities"] for row in rows[:3]] == [{"7": 0, "x": 1}, {"7": 1, "x": 0}, {"7": 0, "x": 1}]
    assert len({row["text"] for row in rows[3:] if row["text"]}) == 8
    vectors = load("vectors-skipgram", kind=WordVectorsPipeline).embed([*(row["text"] for row in rows), "x"])
    expected = label_probabilities(vectors[3:-1], vectors[[0, 1, 2, -1]], np.array([1, 0, 1, 1]))
    assert np.allclose([[row["probabilities"][name] for name in "7x"] for row in rows[3:]], expected, atol=1e-5)
    assert {row["text"]: row["probabilities"] for row in lines("out.taught-train.jsonl")}.items() >= {
        row["text"]: row["probabilities"] for row in rows[:3]
    }.items()
    assert load("out", kind=ClassificationPipeline).labels.names == ("7", "x")
    Path("again.txt").write_text(f"{words[4]}\n{words[5]}\n{words[0]} {words[1]}\n")
    recipe = classifying(Path("few.tsv"))
    propagated = [json.loads(line) for line in propagate_labels("vectors-skipgram", recipe, "again.txt")]
    assert [row["text"] for row in propagated[3:]] == [words[5]]  # an example is not in the pool
    Path("again.txt").write_text(f"{words[4]}\n")
    with pytest.raises(DataError, match=r"again\.txt: all texts of the pool are empty or examples"):
        list(propagate_labels("vectors-skipgram", recipe, "again.txt"))
    assert "out: exists; --overwrite replaces it" in refused(*begin)
    assert "/: contains few.tsv, which is read" in refused(*begin[:6], "/", *begin[7:])
    others = [*begin[:4], "out", "--out", "other", *begin[7:]]
    assert "out: this model has no text embeddings" in refused(*others)
    Path("few.tsv").write_text("label\ttext\nx\tone\nx\ttwo\n")
    assert "few.tsv: all examples have the label x" in refused(*begin, "--overwrite")
    assert "found the recipe of a tagger" in refused(*begin[:7], "--overwrite", "--recipe", "tag-lstm")


def test_principal_components_equal_singular_vectors() -> None:
    """There may be fewer vectors than dimensions."""
    for count in (40, 5):
        vectors = np.random.default_rng(0).normal(3, 1, (count, 9)).astype(np.float32) * np.arange(9)
        components, share = principal_components(vectors, 4)
        scores, sizes, directions = np.linalg.svd(vectors - vectors.mean(0, dtype=np.float64), full_matrices=False)
        assert np.allclose(np.abs(components), np.abs(scores * sizes)[:, :4], atol=1e-9)
        assert share == pytest.approx((sizes[:4] ** 2).sum() / (sizes**2).sum())
        signs = np.sign((components * (scores * sizes)[:, :4]).sum(0))[:, None] * directions[:4]
        assert (signs.max(1) == np.abs(signs).max(1)).all()
    assert weights_by_frequency(np.array([1, 3, 0]), 0.5).tolist() == [0.5 / 0.75, 0.5 / 1.25, 1]
    assert weights_by_frequency(np.array([1, 3]), 0).tolist() == [1, 1]


@pytest.mark.slow
def test_a_static_student_has_vectors_of_single_words(ensue: Ensue, refused: Refused) -> None:
    """The reference reads single words, and computes weighted components in NumPy. A text has the mean vector."""
    unpacked("vectors-skipgram", Path())
    teacher = load("vectors-skipgram", kind=WordVectorsPipeline)
    chosen = [word for word in teacher.words if word.isalpha()]
    Path("pool.txt").write_text("".join(f"{word.title()} {chosen[0]} .\n" for word in chosen))
    make = [
        "distill", "vectors-skipgram", "vectors-static", "--pool", "pool.txt", "--out", "out", "--set",
        "vectors.d_words=3",
    ]  # fmt: skip
    result = ensue(*make).succeeded()
    assert f"3 principal components of {len(chosen) + 1} word vectors" in result.err + result.out
    counts = Counter(Path("pool.txt").read_text().lower().split())
    student = load("out", kind=WordVectorsPipeline)
    assert sorted(student.words) == sorted(counts)
    read = teacher.embed(student.words).astype(np.float64)
    scores, sizes, _ = np.linalg.svd(read - read.mean(0), full_matrices=False)
    shares = np.array([counts[word] for word in student.words]) / counts.total()
    expected = (scores * sizes)[:, :3] * (1e-4 / (1e-4 + shares))[:, None]
    vectors_of_student = np.stack([student.vector(word) for word in student.words])
    signs = np.sign((vectors_of_student * expected).sum(0))
    assert np.allclose(vectors_of_student, expected * signs, atol=1e-6 * np.abs(expected).max())
    mean = student.vector(chosen[0]) + student.vector(".")
    assert np.allclose(student.embed([f"{chosen[0].title()}, unheard, ."])[0], mean / np.linalg.norm(mean), atol=1e-6)
    repeated = package.distill("vectors-skipgram", "vectors-static", train="pool.txt", out="again", settings=make[-1:])
    assert isinstance(repeated, WordVectorsPipeline)
    assert np.array_equal(repeated.table.vectors, student.table.vectors)
    assert "out: exists; --overwrite replaces it" in refused(*make)
    other_command = [*make[:6], "other", *make[7:]]
    assert "need exactly one teacher and one text" in refused(*other_command, "--train", "pool.txt")
    assert "need exactly one teacher and one text" in refused(*other_command[:2], "out", *other_command[2:])
    assert "are for students with labels" in refused(*other_command, "--gold", "0.1")
    assert "vectors.d_words is 300" in refused(*other_command[:-1], "vectors.d_words=300")
    assert 'vectors.kind = "distilled"' in refused(
        *other_command[:2], "vectors-skipgram", *other_command[3:], "--set", "train.epochs=1"
    )
    assert "no word occurs tokenizer.min_count times" in refused(*other_command, "--set", "tokenizer.min_count=999")
    assert "vectors-skipgram: is the same as" in refused(*make[:6], "vectors-skipgram", *make[7:], "--overwrite")
    assert 'vectors.kind "distilled" cannot be trained' in refused(
        "train", "vectors-static", "--train", "pool.txt", "--out", "other"
    )


TAGS = ["O", "B-PER", "I-PER", "E-PER", "S-PER"]
POOL = [["Ann", "Lee", "left"], ["they", "saw", "Bo"]]


def write_tags(path: str, texts: Sequence[Sequence[str]], shares: Sequence[NDArray[np.float64]]) -> None:
    rows = [
        {"tokens": list(words), "probabilities": [dict(zip(TAGS, row, strict=True)) for row in of.tolist()]}
        for words, of in zip(texts, shares, strict=True)
    ]
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_targets_are_the_mean_of_the_teachers_and_the_tag() -> None:
    """The reference is in NumPy: two teachers, a temperature, labels in another scheme, documents, and a pool.

    Labels of the pool are those of the best legal path of all.
    """
    Path("data.txt").write_text("-DOCSTART- O\n\nAl B-PER\nKim I-PER\nran O\n\nyes O\n\n-DOCSTART- O\n\nBo B-PER\n")
    Path("pool.txt").write_text("".join(" ".join(words) + "\n" for words in POOL))
    texts = [["Al", "Kim", "ran"], ["yes"], ["Bo"], *POOL]
    answers = [[drawn(len(words), 9 * seed + n, len(TAGS)) for n, words in enumerate(texts)] for seed in range(2)]
    write_tags("a.jsonl", texts, answers[0])
    write_tags("b.jsonl", texts[::-1], answers[1][::-1])
    recipe = tagging(Path("data.txt"), head={"kind": "crf"}, data={"context_words": 9, "valid_fraction": 0.0})
    student = write_student_data(
        ["a.jsonl", "b.jsonl"], recipe, Path("out"), pool="pool.txt", gold=0.25, temperature=2.0
    )
    rows = lines(student.data.train)
    assert [row["tokens"] for row in rows] == texts
    assert [row.get("document") for row in rows] == [0, 0, 1, None, None]
    assert [row["labels"] for row in rows[:3]] == [["B-PER", "I-PER", "O"], ["O"], ["B-PER"]]
    gold = [["B-PER", "E-PER", "O"], ["O"], ["S-PER"]]
    legal = {"<": "OBS", "O": "OBS>", "B": "IE", "I": "IE", "E": "OBS>", "S": "OBS>"}
    for number, row in enumerate(rows):
        roots = [np.sqrt(of[number]) for of in answers]
        mean = np.mean([root / root.sum(1, keepdims=True) for root in roots], 0)
        if number < 3:
            mean = 0.75 * mean + 0.25 * (np.array(gold[number])[:, None] == TAGS)
        else:
            paths = [(a, b, c) for a in range(5) for b in range(5) for c in range(5)]
            framed_paths = {path: ["<", *(TAGS[tag][0] for tag in path), ">"] for path in paths}
            fits = [path for path, of in framed_paths.items() if all(b in legal[a] for a, b in pairwise(of))]
            best = max(fits, key=lambda path: float(np.prod(mean[np.arange(3), list(path)])))
            tags = [TAGS[tag] for tag in best]
            assert row["labels"] == [{"E": "I-PER", "S": "B-PER"}.get(tag[0], tag) for tag in tags]
        probabilities = [[of.get(tag, 0.0) for tag in TAGS] for of in row["probabilities"]]
        assert np.allclose(probabilities, mean, atol=1e-3)
    job: Any = begin_job(read_recipe(student, {"data.valid_fraction": 0.2}), None)
    passages = job.task.passages.words
    assert sorted(passages.lengths.tolist() + job.split.valid.texts.lengths.tolist()) == [1, 3, 3, 4]
    batch = job.task.batch_of(np.arange(len(passages)), torch.device("cpu"))
    assert batch.tags.sum().item() == pytest.approx(passages.lengths.sum(), rel=1e-5)


@pytest.mark.slow
def test_a_student_of_runs_continues_without_them(ensue: Ensue, refused: Refused, runs: Path) -> None:
    """It predicts labels in the scheme of the training data, also learns from plain text, and is equal in Python."""
    shutil.copytree(runs / "names", "teacher")
    for name, seed in (("train", 1), ("valid", 2), ("test", 3)):
        Path(name).write_text(columns(sentences(20, seed=seed), "iob1"))
    Path("pool.txt").write_text("".join(" ".join(sentence.words) + "\n" for sentence in sentences(10, seed=4)))
    ensue(
        *("distill", "teacher", "tag-lstm-crf", "--train", "train", "--pool", "pool.txt", "--valid", "valid"),
        *("--test", "test", "--out", "out", *SMALL[:6], *SMALL[-4:]),
    ).succeeded()
    rows, teacher = lines("out.taught-train.jsonl"), load("teacher", kind=LabelingPipeline)
    assert [row["tokens"] for row in rows[:20]] == [sentence.words for sentence in sentences(20, seed=1)]
    assert [row["labels"] for row in lines("out.taught-valid.jsonl")] == [
        sentence.labels("iob1") for sentence in sentences(20, seed=2)
    ]
    (answer,) = teacher.label([teacher.sentence(rows[-1]["tokens"], teacher.format("text"))], confidence=True)
    assert answer.posterior is not None
    names = teacher.labels.symbols  # type: ignore[union-attr]
    probabilities = [[of.get(tag, 0.0) for tag in names] for of in rows[-1]["probabilities"]]
    assert np.allclose(probabilities, answer.posterior.marginals, atol=1e-3)
    student = load("out", kind=LabelingPipeline)
    assert (student.labels.scheme, student.labels.tag_scheme) == ("iob1", "iobes")  # type: ignore[union-attr]
    repeated = package.distill(
        "teacher", "tag-lstm-crf", train="train", pool="pool.txt", valid="valid", test="test", out="again",
        settings=SMALL[1:6:2], threads=1, device="cpu",
    )  # fmt: skip
    assert isinstance(repeated, LabelingPipeline)
    assert Path("again/model.safetensors").read_bytes() == Path("out/model.safetensors").read_bytes()
    assert_continues_without_its_teacher(ensue, refused)


def test_unsuitable_taggers_are_refused_as_students_or_teachers(refused: Refused, runs: Path) -> None:
    Path("data.txt").write_text(columns(sentences(5)))
    Path("bio.jsonl").write_text(
        '{"tokens": ["Bo", "Li"], "probabilities": [{"B-PER": 1}, {"O": 0.2, "I-PER": 0.8}]}\n'
    )
    Path("pos.jsonl").write_text('{"tokens": ["a"], "probabilities": [{"DET": 1}]}\n')
    Path("short.jsonl").write_text('{"tokens": ["a", "b"], "probabilities": [{"DET": 1}]}\n')
    Path("plain.txt").write_text("a DET\nb NOUN\n\n" * 3)
    cases: list[tuple[list[object], str]] = [
        ([runs / "names", "tag-lstm-crf", "--set", "head.scheme=bio"], "predicts iobes; the student expects bio"),
        (["bio.jsonl", "tag-lstm-crf"], "bio.jsonl: has tags in the scheme bio; the student learns iobes (head"),
        (["pos.jsonl", "tag-lstm-crf"], "pos.jsonl: has the tags DET; the student learns iobes (head.scheme)"),
        (["short.jsonl", "tag-lstm-crf"], 'short.jsonl:1: expected {"tokens": [...], "probabilities": [{TAG: NUMBER'),
        ([runs / "topics", "tag-lstm-crf"], "the model is a classifier"),
        ([runs / "upos", "tag-lstm", "--train", "data.txt"], "predicts plain labels; the student expects iobes"),
        ([runs / "names", "tag-lstm", "--train", "plain.txt"], "names: predicts iobes; the student expects plain"),
        ([runs / "names", "tag-lstm", "--set", "data.nested=1"], "a student has a single label column"),
    ]
    for arguments, expected in cases:
        train = [] if "--train" in arguments else ["--train", "data.txt"]
        assert expected in refused("distill", *arguments, *train, "--out", "out", "--device", "cpu")
        assert not Path("out.taught-train.jsonl").exists()
