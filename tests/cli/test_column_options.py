"""Law: a model reads data in other columns than its training data with equal results."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from command_fixtures import Ensue
from ensue.cli.options import DATA_OPTIONS
from ensue.errors import DataError, EnsueError
from ensue.library import load
from ensue.tasks import task_entries
from ensue.tasks.contract.pipeline import Pipeline
from kept_runs.make import unpacked

NAMES = {"words": "Inhalt", "labels": "Klasse", "sources": "Quelle", "targets": "Ziel"}


def objects(path: Path, keys: dict[str, str]) -> str:
    """Return JSON lines with other keys, and another text and label under the keys of training."""
    lines = []
    for line in path.read_text().splitlines():
        values = json.loads(line)
        renamed = {new: values[key] for key, new in keys.items()}
        lines.append(json.dumps({**dict.fromkeys(keys, [] if "spans" in keys else "x"), "text": "No.", **renamed}))
    return "\n".join(lines) + "\n"


def classes(folder: Path) -> str:
    return objects(folder / "topics.jsonl", {"text": NAMES["words"], "labels": NAMES["labels"]})


def spans(folder: Path) -> str:
    return objects(folder / "spans.jsonl", {"text": NAMES["words"], "spans": NAMES["labels"]})


def columns(folder: Path) -> str:
    """Return rows with other columns before those of words and labels."""
    rows = (line.split() for line in (folder / "names.txt").read_text().splitlines())
    return "\n".join(" ".join(["_", "O", row[2], "O", row[0], "O"]) if row else "" for row in rows) + "\n"


def pairs(folder: Path) -> str:
    sides = ((folder / f"dev.{side}").read_text().splitlines() for side in ("en", "de"))
    rows = ((number, target, source) for number, (source, target) in enumerate(zip(*sides, strict=True)))
    return table([("Nr", NAMES["targets"], NAMES["sources"]), *rows])


def inflections(folder: Path) -> str:
    """Return rows with the second source column and the target exchanged."""
    rows = [line.split("\t") for line in (folder / "inflected.tsv").read_text().splitlines()]
    return table([(NAMES["sources"], "Merkmal", NAMES["targets"]), *((a, c, b) for a, b, c in rows)])


def frames(folder: Path) -> str:
    return (folder / "sensors.csv").read_text().replace("label", NAMES["labels"], 1)


def captions(folder: Path) -> str:
    return (folder / "captions.csv").read_text().replace("caption", NAMES["labels"], 1)


def table(rows: Sequence[Sequence[Any]]) -> str:
    text = StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


CASES: dict[str, tuple[str, str, Callable[[Path], str], dict[str, str]]] = {
    "classify-bag": ("topics.jsonl", "other.jsonl", classes, {}),
    "tag-nested": ("spans.jsonl", "other.jsonl", spans, {}),
    "tag-lstm-crf": ("names.txt", "other.txt", columns, {"words": "5", "labels": "3"}),
    "translate-lstm": ("dev.en,dev.de", "other.csv", pairs, {}),
    "transduce-lstm": (
        "inflected.tsv",
        "other.csv",
        inflections,
        {"sources": "Quelle,Merkmal", "targets": NAMES["targets"]},
    ),
    "captions": ("captions.csv", "other.csv", captions, {}),
    "tag-frames": ("sensors.csv", "other.csv", frames, {}),
}
"""Runs of `kept_runs` with their data, a function that writes the data in other columns, and columns without a name."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in {"captions", "translate-lstm"})) for name in CASES]
)
def test_data_in_other_columns_have_equal_scores(name: str, tmp_path: Path, in_tmp_path: None, ensue: Ensue) -> None:
    training_data, task_data, write, chosen = CASES[name]
    unpacked(name, tmp_path)
    Path(task_data).write_text(write(tmp_path), encoding="utf-8")
    pipeline: Any = load(name, device="cpu")
    chosen = chosen or {option: NAMES[option] for option in pipeline.column_options}
    expected = pipeline.evaluate(training_data).as_json()
    changed = pipeline.with_columns(**chosen)
    assert changed.evaluate(task_data).as_json() == expected
    assert changed.scored_items(task_data).compute() == pipeline.scored_items(training_data).compute()
    with suppress(EnsueError):  # the options are needed
        assert pipeline.evaluate(task_data).as_json() != expected
    options = [word for option, column in chosen.items() for word in (f"--{option}", column)]
    answer = ensue("evaluate", name, task_data, *options, "--json")
    assert json.loads(answer.out) == expected, answer.err


def others() -> Iterator[tuple[type[Pipeline], str]]:
    """Yield each pipeline with the options of columns that it lacks."""
    for entry in task_entries():
        pipeline = entry.pipeline_class
        yield from ((pipeline, name) for name in NAMES if name not in pipeline.column_options)


def test_a_model_without_columns_refuses_their_option() -> None:
    assert {*NAMES} < {*DATA_OPTIONS}
    assert {name for entry in task_entries() for name in entry.pipeline_class.column_options} == {*NAMES}
    for pipeline, name in others():
        with pytest.raises(EnsueError, match=f"unknown columns {name}; the data of this model have"):
            object.__new__(pipeline).with_columns(**{name: "x"})


def test_a_table_needs_all_source_columns(tmp_path: Path) -> None:
    unpacked("transduce-lstm", tmp_path)
    pipeline: Any = load(tmp_path / "transduce-lstm", device="cpu")
    for rows, expected in ("lemma,tag\nsea,N;PL\n", 1), ("sea,N;PL\n", 0):
        (tmp_path / "a.csv").write_text(rows)
        with (
            nullcontext()
            if expected
            else pytest.raises(DataError, match="reads 2 source columns; found 1: csv, source")
        ):
            assert len([*pipeline.source(tmp_path / "a.csv", is_labeled=False)]) == expected


def test_plain_text_refuses_a_column_of_words(tmp_path: Path) -> None:
    unpacked("tag-lstm-crf", tmp_path)
    pipeline: Any = load(tmp_path / "tag-lstm-crf", device="cpu").with_columns(words="Inhalt")
    with pytest.raises(EnsueError, match=r"plain.txt: plain text has no columns; found the column of words Inhalt"):
        pipeline.source(tmp_path / "plain.txt")


def test_a_tagger_of_several_columns_refuses_another_column_of_labels(tmp_path: Path) -> None:
    unpacked("tag-columns", tmp_path)
    pipeline: Any = load(tmp_path / "tag-columns", device="cpu").with_columns(labels="xpos")
    with pytest.raises(EnsueError, match="the labels are in upos, feats, lemma; expected no other columns"):
        pipeline.evaluate(tmp_path / "treebank.conllu")
