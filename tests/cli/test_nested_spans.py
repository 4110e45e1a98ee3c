"""Every command works with overlapping spans, or one line names the command or recipe that does."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from command_fixtures import Ensue
from command_fixtures import command as click_command
from ensue.cli.program import command_line
from training.tiny import run_tiny
from training.tiny_texts import tagging, without_pictures

ROWS: list[dict[str, Any]] = [
    {"text": "The Bank of England rose .", "spans": [[4, 19, "ORG"], [12, 19, "LOC"]]},
    {"text": "Ann saw the City of Paris .", "spans": [[0, 3, "PER"], [12, 25, "ORG"], [20, 25, "LOC"]]},
    {"text": "Bob likes rain .", "spans": [[0, 3, "PER"]]},
    {"text": "The Bank of France fell .", "spans": [[4, 18, "ORG"], [12, 18, "LOC"]]},
]
SMALL = [
    word
    for setting in ("encoder.d_model=4", "features.d_words=4", "train.validations=1", "train.epochs=1")
    for word in ("--set", setting)
]
WORKS = ""
OVERLAP = "the recipe tag-nested learns overlapping spans"
KEEP_LABELS = "without tuning.keep_labels, ensue train learns old and new labels"
OF_TAGGERS = "the model is a tagger, for predict, evaluate"
COMMANDS: dict[str, dict[str, str]] = {
    "data": {"data {data}": WORKS, "data {columns}": WORKS},
    "prepare": {"prepare tag-nested --train {data}": WORKS, "prepare tag-lstm-crf --train {data}": OVERLAP},
    "train": {
        "train tag-nested --train {data} --valid {data} --out {out} {small}": WORKS,
        "train tag-nested --train {columns} --valid {columns} --out {out} {small}": WORKS,
        "train tag-lstm-crf --train {data} --valid {data} --out {out}": OVERLAP,
        "train tag-lstm-crf --train {columns} --valid {columns} --out {out}": OVERLAP,
        "train tag-nested --train {data} --from {nested} --set tuning.keep_labels=true --out {out}": KEEP_LABELS,
    },
    "evaluate": {
        "evaluate {nested} {data} --errors {out}.tsv": WORKS,
        "evaluate {nested} {columns}": WORKS,
        "evaluate {flat} {data}": OVERLAP,
    },
    "predict": {
        "predict {nested} {data}": WORKS,
        "predict {nested} {data} --json --at-least 0.5": WORKS,
        "predict {nested} {brat} --to brat --out {out}": WORKS,
        "predict {nested} {data} --to conll --out {out}": WORKS,
        "predict {flat} {data}": WORKS,  # labels in the file are not read
        "predict {flat} {brat}": WORKS,
    },
    "doubt": {
        "doubt {data} --folds 2 {small}": WORKS,
        "doubt {columns} --folds 2 {small}": WORKS,
        "doubt {data} --recipe tag-lstm-crf": OVERLAP,
    },
    "inspect": {"inspect {nested} 'Bank of Lima' --out {out}.html": "ensue predict --json"},
    "choose": {"choose {nested} {data} --count 2 --out {out}.jsonl": WORKS},
    "distill": {
        "distill {nested} tag-nested --train {data} --out {out}": "ensue train learns other labels",
        "distill {nested} tag-lstm-crf --train {data} --out {out}": OVERLAP,
    },
    "compare": {"compare {nested} {nested} --test {data}": WORKS, "compare {flat} {flat} --test {data}": OVERLAP},
    "export": {
        "export {nested} --format c --out {out}": "--format onnx supports them",
        "export {nested} --format web --out {out}": "web",
        "export {nested} --format huggingface --out {out}": "expected a Transformer",
    },
    "search": {
        "search tag-nested --train {data} --valid {data} --space {space} --trials 1 --out {out} {small}": WORKS,
        "search tag-lstm-crf --train {data} --valid {data} --space {space} --trials 1 --out {out}": OVERLAP,
    },
    "begin": {"begin {data} {data} --vectors {nested} --out {out}": f"{OVERLAP}|cannot tell which is the label"},
    "score": {"score {nested} {data}": OF_TAGGERS},
    "generate": {"generate {nested}": OF_TAGGERS},
    "embed": {"embed {nested} {data} --out {out}.npy": OF_TAGGERS},
    "neighbors": {"neighbors {nested} Bank": OF_TAGGERS},
    "push": {"push {nested} owner/name": "--license"},
}
"""Command lines of each command, and the text of the refusal."""
WITHOUT_SPANS = {"models", "quickstart", "cache", "recipes", "machine", "gradients", "import", "serve"}
"""Commands that read neither data nor a tagger, and `serve`, whose tests have such a tagger."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with spans that overlap, as JSON, in brat's files and in columns, and the runs `nested` and `flat`."""
    folder = tmp_path_factory.mktemp("nested")
    write_spans(folder)
    flat = [row | {"spans": row["spans"][:1]} for row in ROWS]
    (folder / "flat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in flat))
    with pytest.MonkeyPatch.context() as patch:
        without_pictures(patch)
        for name, file, nested in (("nested", "spans.jsonl", 2), ("flat", "flat.jsonl", 0)):
            data = {"nested": nested, "valid": str(folder / file)}
            recipe = tagging(folder / file, head={"kind": "crf"}, data=data, steps=2)
            run_tiny(recipe, folder / name)
    return folder


def write_spans(folder: Path) -> None:
    (folder / "spans.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "brat").mkdir()
    for number, row in enumerate(ROWS):
        lines = [f"T{n}\t{label} {a} {b}\t{row['text'][a:b]}\n" for n, (a, b, label) in enumerate(row["spans"], 1)]
        (folder / f"brat/{number}.ann").write_text("".join(lines))
        (folder / f"brat/{number}.txt").write_text(row["text"] + "\n")
    (folder / "columns.txt").write_text("The B-NP\nBank I-NP|B-ORG\nrose O\n\nAnn B-PER\n\nBob B-PER\n\nIt O\n")


def test_the_table_lists_every_command() -> None:
    assert {*click_command(command_line("")).commands} == {*COMMANDS} | WITHOUT_SPANS


@pytest.mark.slow
@pytest.mark.parametrize("data", ["spans.jsonl", "brat"])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_work_or_name_one_that_does(
    command: str, data: str, folder: Path, tmp_path: Path, ensue: Ensue
) -> None:
    (tmp_path / "space.toml").write_text('"train.learning_rate" = [0.01, 0.02]\n')
    names = {name: folder / name for name in ("nested", "flat")}
    for number, (line, expected) in enumerate(COMMANDS[command].items()):
        arguments = line.format(
            **names, data=folder / data, brat=folder / "brat", columns=folder / "columns.txt",
            out=tmp_path / str(number), space=tmp_path / "space.toml", small=shlex.join(SMALL),
        )  # fmt: skip
        status, _, err = ensue(*shlex.split(arguments))
        if expected:
            assert (status, err.count("\n")) == (2, 1), line
            assert re.search(expected, err), line
        else:
            assert status == 0, (line, err)
