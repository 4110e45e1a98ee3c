"""What people get wrong with labeled data: one line on stderr, exit status 2, nothing made and nothing lost."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from command_fixtures import Ensue, contents
from ensue.errors import EnsueError
from ensue.library import load
from ensue.tasks import task_entry
from training.tiny_texts import columns, documents, sentences, tsv

pytestmark = pytest.mark.usefixtures("in_tmp_path")

Refused = Callable[..., str]
SMALL = ["--set", "train.steps=2", "--set", "train.precision=float32", "--threads", "1", "--device", "cpu"]


def train(recipe: str, path: object, *more: object, out: object = "out") -> list[object]:
    return ["train", recipe, "--train", path, "--out", out, *SMALL, *more]


BAD: dict[str, list[tuple[str, bytes, str]]] = {
    "tag-lstm-crf": [
        ("bad.txt", b"the O\nhouse O\n\nit O\n", 'bad.txt: nothing to learn: all 3 words have the label "O"'),
        ("bad.txt", b"the DET\ncaf\xe9 NOUN\n\n", "bad.txt:2: not UTF-8 (byte 0xe9 in column 4);"),
        ("bad.jsonl", b'{"tokens": ["a"], "labels": ["x"]}\n{"tokens": 3}\n', 'bad.jsonl:2: "tokens" must'),
        ("bad.conllu", b"1\tthe\tthe\tDET\n", "bad.conllu:1: expected 10 columns separated by tabs, found 4"),
    ],
    "classify-lstm": [
        ("bad.tsv", b"x\ta text\n", "bad.tsv: "),
        ("bad.tsv", b"label\ttext\nx\ta text\ny\n", "bad.tsv:3: 1 column; expected 2 as in line 1"),
        ("bad.csv", b"label,text\nx,caf\xe9\n" * 5, "bad.csv:2: not UTF-8 (byte 0xe9 in column 6)"),
        ("bad.csv", b'label,text\nx,"a\ny,b\n', "bad.csv:2: the quote that opens here is not closed"),
        ("bad.tsv", b"label\ttext\nx\ta\0\ny\tb\n", "bad.tsv:2: a NUL character in column 4"),
    ],
}


@pytest.mark.parametrize("recipe", list(BAD))
def test_data_without_labels_or_damaged_are_one_line(recipe: str, refused: Refused) -> None:
    for file, content, expected in BAD[recipe]:
        Path(file).write_bytes(content)
        assert expected.casefold() in refused(*train(recipe, file)).casefold()
        assert contents(Path()) == {file: content}
        Path(file).unlink()


def test_paths_that_are_not_there(refused: Refused, runs: Path) -> None:
    assert refused(*train("tag-lstm", runs / "nmaes.txt")).endswith('no such file or folder; did you mean "names.txt"?')
    assert "other.txt: no such file" in refused(*train("tag-lstm", runs / "names.txt", "--valid", "other.txt"))
    assert "other.tsv: no such file" in refused(*train("classify-lstm", runs / "topics.tsv", "--test", "other.tsv"))
    assert "no training data: --train PATH" in refused("train", "tag-lstm", "--out", "out")
    assert "no training data: --train PATH" in refused("train", "classify-lstm", "--out", "out")
    for command in ("predict", "evaluate"):
        assert 'did you mean "names.txt"?' in refused(command, runs / "names", runs / "name.txt")
        assert 'did you mean "topics.tsv"?' in refused(command, runs / "topics", runs / "topcis.tsv")
    assert refused("predict", "nowhere", stdin=b"a") == "nowhere: no such run directory"
    assert os.listdir() == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("recipe", "setting", "expected"),
    [
        ("tag-lstm", "data.label=upos", 'unknown key "data.label" in data; did you mean "labels"?'),
        ("tag-lstm", "data.labels=9", 'names.txt:1: no column "9"; the file has columns 1 to 3'),
        ("tag-lstm", "data.words=9", 'names.txt:1: no column "9"; the file has columns 1 to 3'),
        ("tag-lstm", "features.columns=['4']", 'names.txt:1: no column "4"; the file has columns 1 to 3'),
        ("tag-lstm", "features.vectors=none.txt", "none.txt: no such file"),
        ("classify-lstm", "data.labels=lable", 'no "lable"; did you mean "label"?'),
        ("classify-lstm", "data.texts=['body']", 'no "body"; there are "label", "text"'),
        ("classify-lstm", "data.segment_tokens=5", "set directions.bidirectional=false"),
    ],
)
def test_settings_that_make_no_sense(recipe: str, setting: str, expected: str, refused: Refused, runs: Path) -> None:
    data = runs / ("names.txt" if recipe == "tag-lstm" else "topics.tsv")
    assert expected in refused(*train(recipe, data, "--set", setting))
    assert os.listdir() == []


def test_recipes_and_data_of_another_task(refused: Refused, runs: Path) -> None:
    assert "upos.conllu" in refused(*train("classify-lstm", runs / "upos.conllu"))
    assert "several.txt" in refused(*train("tag-lstm", runs / "several.txt"))
    assert os.listdir() == []


def test_commands_for_models_of_another_kind(refused: Refused, runs: Path, trained: Path) -> None:
    for command in ("generate", "score"):
        for name, what in (("names", "tagger"), ("topics", "classifier")):
            assert refused(command, runs / name).startswith(f"{runs / name}: the model is a {what}")
    said = refused("predict", trained / "lstm", stdin=b"a")
    assert said.startswith(f"{trained / 'lstm'}: the model is a language model")
    assert "the model is a tagger" in refused("evaluate", runs / "names", "--minimal-pairs", "x.jsonl")
    with pytest.raises(EnsueError, match="a language model has no pretrained vectors"):
        load(trained / "lstm", vectors=runs / "names.txt")
    assert "trained without pretrained vectors" in refused("predict", runs / "names", "--vectors", runs / "names.txt")


def test_a_model_with_one_command(refused: Refused, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = replace(task_entry("labeling"), commands=("evaluate",))
    monkeypatch.setattr("ensue.tasks.labeling.TASK", entry)
    assert refused("predict", runs / "names") == f"{runs / 'names'}: the model is a tagger, for evaluate"


FILES: dict[str, tuple[str, bytes, str]] = {
    "empty": ("a.txt", b"", "a.txt: the text is empty"),
    "latin-1": ("a.txt", "the caf\u00e9\n".encode("latin-1"), "a.txt:1: not UTF-8 (byte 0xe9 in column 8)"),
    "cut gz": ("a.txt.gz", b"\x1f\x8b\x08\x00\x00", "a.txt.gz: damaged"),
    "bad json": ("a.jsonl", b'{"tokens": ["a"], "labels": ["O"]}\n{"text": \n', "a.jsonl:2: not JSON"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", list(FILES))
@pytest.mark.parametrize("run", ["names", "topics"])
def test_files_that_cannot_be_labeled(run: str, name: str, refused: Refused, runs: Path) -> None:
    file, content, expected = FILES[name]
    if run == "topics":
        content = content.replace(b'"tokens": ["a"], "labels": ["O"]', b'"text": "a", "label": "b"')
    Path(file).write_bytes(content)
    assert expected in refused("predict", runs / run, file)
    assert expected in refused("evaluate", runs / run, file, "--json")


def test_pipes_that_cannot_be_labeled(refused: Refused, runs: Path) -> None:
    for run in ("names", "topics"):
        assert "stdin:2: not UTF-8" in refused("predict", runs / run, stdin=b"the\ncaf\xe9\n")
        assert 'unknown encoding "nope"' in refused("predict", runs / run, "--encoding", "nope", stdin=b"a")
        assert "stdin:1: " in refused("predict", runs / run, "--format", "json", stdin=b"{broken\n")
    line = refused("predict", runs / "names", "--format", "colums", stdin=b"a")
    assert (
        line
        == 'unknown format "colums"; expected one of columns, conllu, json, conllu-text, text; did you mean "columns"?'
    )
    assert "stdin:2: expected 2 columns" in refused("predict", runs / "names", "--format", "columns", stdin=b"a b\nc\n")
    assert 'unknown format "tvs"; did you mean "tsv"?' in refused(
        "predict", runs / "topics", "--format", "tvs", stdin=b"a"
    )
    assert "the model reads pairs of texts; found 1" in refused("predict", runs / "pairs", stdin=b"salt and oven\n")


def test_one_line_files(ensue: Ensue, runs: Path) -> None:
    for content in ("Anna PROPN B-PER", "Anna PROPN B-PER\n"):
        Path("one.conll").write_text(content)
        said = ensue("predict", runs / "names", "one.conll")
        assert (said.status, said.out.rpartition(" ")[0]) == (0, "Anna PROPN")
        assert json.loads(ensue("evaluate", runs / "names", "one.conll", "--json").out)["tokens"] == 1
    Path("one.tsv").write_text("label\ttext\nmusic\ta choir")
    assert ensue("predict", runs / "topics", "one.tsv").out.startswith("label\ttext\tprobability\n")
    assert json.loads(ensue("evaluate", runs / "topics", "one.tsv", "--json").out)["examples"] == 1


@pytest.mark.slow
def test_data_that_changed_are_not_gone_on_with(refused: Refused, ensue: Ensue) -> None:
    Path("names.txt").write_text(columns(sentences(40)))
    Path("topics.tsv").write_text(tsv(documents(40)))
    for recipe, file in (("tag-lstm", "names.txt"), ("classify-lstm", "topics.tsv")):
        assert ensue(*train(recipe, file, out=recipe)).status == 0
        Path(file).write_text(Path(file).read_text() + Path(file).read_text().splitlines()[-1] + "\n")
        before = contents(Path(recipe))
        assert f"{file} has changed since this run began" in refused("train", "--resume", "--out", recipe)
        assert contents(Path(recipe)) == before


@pytest.mark.parametrize("option", ["--out", "--page"])
def test_doubts_that_could_not_be_written_are_refused_before_a_model_is_trained(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr("ensue.extensions.annotating.doubts.doubt", None)
    path = tmp_path / "none" / "doubts.jsonl"
    assert f"{path}: no folder {path.parent}" in refused("doubt", "labels.tsv", option, path)
