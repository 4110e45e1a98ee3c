"""ensue distill for taggers: a student learns the probabilities of tags that its teachers give."""

import json
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import ensue as package
from command_fixtures import Ensue
from ensue.extensions.annotating.teachers import write_student_data
from ensue.recipe import read_recipe
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.training.run import begin_job
from training.tiny_texts import columns, sentences, tagging

pytestmark = pytest.mark.usefixtures("in_tmp_path")

Refused = Callable[..., str]
SMALL = ["--set", "train.steps=3", "--set", "train.precision=float32", "--set", "train.validations=1"]
TAGS = ["O", "B-PER", "I-PER", "E-PER", "S-PER"]
POOL = [["Ann", "Lee", "left"], ["they", "saw", "Bo"]]


def lines(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def drawn(words: Sequence[str], seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).dirichlet(np.ones(len(TAGS)), len(words))


def write_answers(path: str, texts: Sequence[Sequence[str]], shares: Sequence[NDArray[np.float64]]) -> None:
    rows = [
        {"tokens": list(words), "probabilities": [dict(zip(TAGS, row, strict=True)) for row in of.tolist()]}
        for words, of in zip(texts, shares, strict=True)
    ]
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_what_is_learned_is_the_mean_of_the_teachers_and_the_tag() -> None:
    """By NumPy: two teachers, a temperature, tags of labels in another scheme, documents, and a pool without labels.
    The labels of the pool are the best legal ones, found by trying all.
    """
    Path("data.txt").write_text("-DOCSTART- O\n\nAl B-PER\nKim I-PER\nran O\n\nyes O\n\n-DOCSTART- O\n\nBo B-PER\n")
    Path("pool.txt").write_text("".join(" ".join(words) + "\n" for words in POOL))
    texts = [["Al", "Kim", "ran"], ["yes"], ["Bo"], *POOL]
    told = [[drawn(words, 9 * seed + n) for n, words in enumerate(texts)] for seed in range(2)]
    write_answers("a.jsonl", texts, told[0])
    write_answers("b.jsonl", texts[::-1], told[1][::-1])
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
        roots = [np.sqrt(of[number]) for of in told]
        mean = np.mean([root / root.sum(1, keepdims=True) for root in roots], 0)
        if number < 3:
            mean = 0.75 * mean + 0.25 * (np.array(gold[number])[:, None] == TAGS)
        else:
            paths = [(a, b, c) for a in range(5) for b in range(5) for c in range(5)]
            written = {path: ["<", *(TAGS[tag][0] for tag in path), ">"] for path in paths}
            fits = [path for path, of in written.items() if all(b in legal[a] for a, b in pairwise(of))]
            best = max(fits, key=lambda path: float(np.prod(mean[np.arange(3), list(path)])))
            tags = [TAGS[tag] for tag in best]
            assert row["labels"] == [{"E": "I-PER", "S": "B-PER"}.get(tag[0], tag) for tag in tags]
        found = [[of.get(tag, 0.0) for tag in TAGS] for of in row["probabilities"]]
        assert np.allclose(found, mean, atol=1e-3)
    job: Any = begin_job(read_recipe(student, {"data.valid_fraction": 0.2}), None)
    passages = job.task.passages.words
    assert sorted(passages.lengths.tolist() + job.split.valid.texts.lengths.tolist()) == [1, 3, 3, 4]
    batch = job.task.batch_of(np.arange(len(passages)), torch.device("cpu"))
    assert batch.tags.sum().item() == pytest.approx(passages.lengths.sum(), rel=1e-5)


@pytest.mark.slow
def test_a_student_of_runs_goes_on_without_them(ensue: Ensue, refused: Refused, runs: Path) -> None:
    """It writes labels in the scheme of the training data, learns from plain text, too, and is the same from Python."""
    shutil.copytree(runs / "names", "teacher")
    for name, seed in (("train", 1), ("valid", 2), ("test", 3)):
        Path(name).write_text(columns(sentences(20, seed=seed), "iob1"))
    Path("pool.txt").write_text("".join(" ".join(one.words) + "\n" for one in sentences(10, seed=4)))
    said = ensue(
        *("distill", "teacher", "tag-lstm-crf", "--train", "train", "--pool", "pool.txt", "--valid", "valid"),
        *("--test", "test", "--out", "out", *SMALL, "--threads", "1", "--device", "cpu"),
    )
    assert said.status == 0, said.err
    rows, teacher = lines("out.taught-train.jsonl"), package.load("teacher", kind=LabelingPipeline)
    assert [row["tokens"] for row in rows[:20]] == [one.words for one in sentences(20, seed=1)]
    assert [row["labels"] for row in lines("out.taught-valid.jsonl")] == [
        one.labels("iob1") for one in sentences(20, seed=2)
    ]
    (answer,) = teacher.label([teacher.sentence(rows[-1]["tokens"], teacher.format("text"))], confidence=True)
    assert answer.posterior is not None
    names = teacher.labels.symbols  # type: ignore[union-attr]
    found = [[of.get(tag, 0.0) for tag in names] for of in rows[-1]["probabilities"]]
    assert np.allclose(found, answer.posterior.marginals, atol=1e-3)
    student = package.load("out", kind=LabelingPipeline)
    assert (student.labels.scheme, student.labels.tag_scheme) == ("iob1", "iobes")  # type: ignore[union-attr]
    again = package.distill(
        "teacher", "tag-lstm-crf", train="train", pool="pool.txt", valid="valid", test="test", out="again",
        settings=[setting for setting in SMALL if setting != "--set"], threads=1, device="cpu",
    )  # fmt: skip
    assert isinstance(again, LabelingPipeline)
    assert Path("again/model.safetensors").read_bytes() == Path("out/model.safetensors").read_bytes()
    shutil.rmtree("teacher")
    more = ["train", "--resume", "--out", "out", "--set", "train.steps=4"]
    assert ensue(*more).status == 0
    with open("out.taught-train.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(rows[0]) + "\n")
    assert "out.taught-train.jsonl has changed since this run began" in refused(*more)


def test_taggers_that_are_refused_as_students_or_teachers(refused: Refused, runs: Path) -> None:
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
