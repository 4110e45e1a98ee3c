"""Wrong labeled data are one line on stderr with exit status 2, and change no file."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from command_fixtures import Ensue
from ensue.errors import EnsueError
from ensue.library import load
from ensue.tasks import task_entry

pytestmark = pytest.mark.usefixtures("in_tmp_path")

Refused = Callable[..., str]
SMALL = ["--set", "train.steps=2", "--set", "train.precision=float32", "--threads", "1", "--device", "cpu"]


def train(recipe: str, path: object, *more: object, out: object = "out") -> list[object]:
    return ["train", recipe, "--train", path, "--out", out, *SMALL, *more]


def test_paths_that_do_not_exist_are_refused(refused: Refused, runs: Path) -> None:
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


def test_recipes_and_data_of_another_task_are_refused(refused: Refused, runs: Path) -> None:
    assert "upos.conllu" in refused(*train("classify-lstm", runs / "upos.conllu"))
    assert "several.txt" in refused(*train("tag-lstm", runs / "several.txt"))
    assert os.listdir() == []


def test_commands_for_another_kind_of_model_are_refused(refused: Refused, runs: Path, trained: Path) -> None:
    for command in ("generate", "score"):
        for name, what in (("names", "tagger"), ("topics", "classifier")):
            assert refused(command, runs / name).startswith(f"{runs / name}: the model is a {what}")
    message = refused("predict", trained / "lstm", stdin=b"a")
    assert message.startswith(f"{trained / 'lstm'}: the model is a language model")
    assert "the model is a tagger" in refused("evaluate", runs / "names", "--minimal-pairs", "x.jsonl")
    with pytest.raises(EnsueError, match="a language model has no pretrained vectors"):
        load(trained / "lstm", vectors=runs / "names.txt")
    assert "trained without pretrained vectors" in refused("predict", runs / "names", "--vectors", runs / "names.txt")


def test_an_error_names_the_command_of_a_model(refused: Refused, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = replace(task_entry("labeling"), commands=("evaluate",))
    monkeypatch.setattr("ensue.tasks.labeling.TASK", entry)
    assert refused("predict", runs / "names") == f"{runs / 'names'}: the model is a tagger, for evaluate"


def test_pipes_that_cannot_be_labeled_are_refused(refused: Refused, runs: Path) -> None:
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


def test_files_of_one_line_are_labeled(ensue: Ensue, runs: Path) -> None:
    for content in ("Anna PROPN B-PER", "Anna PROPN B-PER\n"):
        Path("one.conll").write_text(content)
        result = ensue("predict", runs / "names", "one.conll")
        assert (result.status, result.out.rpartition(" ")[0]) == (0, "Anna PROPN")
        assert json.loads(ensue("evaluate", runs / "names", "one.conll", "--json").out)["tokens"] == 1
    Path("one.tsv").write_text("label\ttext\nmusic\ta choir")
    assert ensue("predict", runs / "topics", "one.tsv").out.startswith("label\ttext\tprobability\n")
    assert json.loads(ensue("evaluate", runs / "topics", "one.tsv", "--json").out)["examples"] == 1


@pytest.mark.parametrize("option", ["--out", "--page"])
def test_doubt_refuses_an_output_that_cannot_be_written_before_training(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr("ensue.extensions.annotating.doubts.doubt", None)
    path = tmp_path / "none" / "doubts.jsonl"
    assert f"{path}: no folder {path.parent}" in refused("doubt", "labels.tsv", option, path)
