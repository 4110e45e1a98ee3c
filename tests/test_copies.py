"""A pipeline of each task can be pickled, copied and sent to a process, and the copy answers the same.

The pipelines and the expected answers are those of the stored runs.
"""

import copy
import io
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import joblib
import pytest
import torch

import ensue
from ensue import errors
from ensue.recipe import read_recipe
from ensue.tasks import task_names
from ensue.text.lexicon import UnknownCounts
from ensue.text.tokenizer import CharacterTokenizer
from kept_runs.answers import answer, are_alike
from kept_runs.make import RUNS, unpacked
from training.tiny import needs_int8

SPARE_BYTES = 1 << 14
"""The bytes that a pickle may have beyond three times the files of its run, such as names of classes."""


def pickled(model: Any) -> Any:
    return pickle.loads(pickle.dumps(model))


def dumped(model: Any) -> Any:
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


COPIES = {"pickle": pickled, "deepcopy": copy.deepcopy, "joblib": dumped}


def task_of(name: str) -> str:
    return read_recipe(RUNS[name].recipe).task


FIRST = {task_of(name): name for name in reversed(RUNS)}
"""A stored run of each task."""
ASK = {"predict", "evaluate", "score", "generate", "embed", "neighbors"}
WITHOUT_RUNS = {"sentence-vectors", "frame-classification-minirocket"}
"""Tasks with the pipelines of masked language models and of frame classifiers."""


def test_each_task_has_a_run() -> None:
    assert {*FIRST} == {*task_names()} - WITHOUT_RUNS


@pytest.mark.parametrize("task", FIRST)
def test_a_pipeline_of_each_task_is_copied(task: str, folder: Path) -> None:
    """The copies are small, and share no weights with the model."""
    unpacked(FIRST[task], folder)
    model = ensue.load(FIRST[task])
    size = sum(path.stat().st_size for path in Path(FIRST[task]).rglob("*") if path.is_file())
    assert len(pickle.dumps(model)) < 3 * size + SPARE_BYTES
    for copied in COPIES.values():
        again = copied(model)
        pairs = list(zip(model.model.parameters(), again.model.parameters(), strict=True))
        assert all(torch.equal(a, b) and a.data_ptr() != b.data_ptr() for a, b in pairs)
        assert repr(again) == repr(model)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.sampled(4)) for name in RUNS if name != "stopped"]
)
def test_a_copy_answers_as_the_model(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test all commands of the stored run in ASK."""
    commands = [[word, name] for word in ASK]
    records = [record for record in unpacked(name, folder) if record["command"].split()[:2] in commands]
    load = ensue.library.load
    monkeypatch.setattr("ensue.library.load", lambda *args, **options: pickled(load(*args, **options)))
    assert [record["command"] for record in records if not are_alike(answer(record["command"]), record["answer"])] == []


def used(name: str, **options: Any) -> tuple[Any, list[str]]:
    """Return a model after a prediction, and the texts that it read."""
    model = ensue.load(name, **options)
    texts = ["Anna Novak sees Lima.", "The new boat leaves Oslo Bay."]
    model.predict(texts)
    return model, texts


def test_a_model_in_use_with_vectors_is_copied(folder: Path) -> None:
    unpacked("tag-vectors", folder)
    model, texts = used("tag-vectors", vectors="glove.txt")
    for copied in COPIES.values():
        again = copied(model)
        assert again.lacking() == model.lacking()
        assert again.predict(texts) == model.predict(texts)
        assert pickled(again.predict(texts)) == model.predict(texts)


@pytest.mark.parametrize("name", ["tag-vectors", "classify-lstm", "char-lstm"])
def test_answers_scores_and_pages_are_pickled(name: str, folder: Path) -> None:
    unpacked(name, folder)
    model: Any = ensue.load(name)
    page = model.inspect("The sea was calm.")
    assert pickled(page)._repr_html_() == page._repr_html_()
    scores = model.evaluate(
        "small.txt" if name == "char-lstm" else "names.txt" if name == "tag-vectors" else "reviews.tsv"
    )
    assert pickled(scores).as_json() == scores.as_json()


@pytest.mark.parametrize("kind", [kind for kind in vars(errors).values() if isinstance(kind, type)])
def test_errors_come_back_from_a_process(kind: type) -> None:
    if issubclass(kind, Exception):
        assert str(pickled(kind("a message"))) == "a message"


@pytest.mark.parametrize(
    ("join", "names"), [("before", ("cut-lstm", "tag-lstm")), ("with_others", ("translate-lstm", "translate-feeding"))]
)
def test_ensembles_and_chains_of_models_are_copied(join: str, names: tuple[str, str], folder: Path) -> None:
    for name in names:
        unpacked(name, folder)
    first, second = map(ensue.load, names)
    model = getattr(first, join)(second)
    assert pickled(model).predict(["The sea was calm."]) == model.predict(["The sea was calm."])


@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("int8", marks=needs_int8)])
def test_a_model_in_a_lower_precision_is_copied(precision: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.library.has_bfloat16", lambda: True)
    unpacked("tag-lstm", folder)
    model, texts = used("tag-lstm", precision=precision)
    assert pickled(model).predict(texts) == copy.deepcopy(model).predict(texts) == model.predict(texts)


def answers(model: Any, text: str) -> Any:
    return model.predict([text])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tag-lstm-crf", "classify-bag", "cut-lstm", "translate-lstm"])
def test_a_model_is_sent_to_a_process_and_its_answer_back(name: str, folder: Path) -> None:
    unpacked(name, folder)
    model: Any = ensue.load(name)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(answers, (model, "The sea was calm.")) == answers(model, "The sea was calm.")


def test_a_copy_has_new_locks_and_no_cached_properties() -> None:
    counts, tokenizer = UnknownCounts(), CharacterTokenizer(["<unk>", "a"])
    tokenizer.encode("a")
    with vars(counts)["_lock"]:
        copy.deepcopy(counts).add("lack", 1, 1)
    assert counts.line() == ""
    assert "_table" in vars(tokenizer)
    assert "_table" not in vars(pickled(tokenizer))
