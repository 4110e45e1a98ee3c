"""Law: files of `predict --to FORMAT` are read back with the predicted labels, or refused in one line.

The law tries every writer, every kind of tagger and every kind of input; no task reads the formats in `UNREADABLE`.
"""

import csv
import json
import shutil
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ensue.data.sentences.source import SentenceSource
from ensue.errors import DataError, EnsueError
from ensue.extensions.annotation_formats import writers
from ensue.library import load
from ensue.notices import Notice
from ensue.text.label_columns import LabelColumns
from ensue.text.schemes import overlapping_spans, spans
from kept_runs.make import unpacked

INPUTS = {
    "a.txt": "😀 Anna Novak sees Lima.\r\n\r\n  the old house\nLima\x0b Anna\u2028Oslo é, \"Novak\"\n\tx\nAnna",
    "mark.txt": "\ufeffAnna Novak sees Lima.\nthe old house\n",
    "a.conll": "Anna O\nNovak O\n\nLima O\n",
    "a.conllu": "# text = Anna.\n1\tAnna\t_\tX\t_\t_\t0\troot\t_\tSpaceAfter=No\n2\t.\t_\tX\t_\t_\t1\tx\t_\t_\n\n",
    "a.jsonl": '{"id": 1, "text": "Anna Novak sees\\nLima.", "f": 1.5}\n{"id": 2, "text": "the old house", "x": "y"}\n',
    "tokens.jsonl": '{"tokens": ["Anna", "New York", "."]}\n{"tokens": []}\n{"tokens": ["-DOCSTART-", "#"]}\n',
    "a.csv": 'id,text,note\n1,"Anna Novak, sees\nLima.",x\n2,"the ""old"" house",y\n',
    "a.tsv": "id\ttext\n1\tAnna Novak sees Lima.\n2\tthe old house\n",
}  # fmt: skip
NAMES = {
    "brat": "out", "docbin": "o.spacy", "label-studio": "o.json", "conll": "o.conll", "conllu": "o.conllu",
    "doccano": "o.jsonl", "prodigy": "o.jsonl", "jsonl": "o.jsonl",
}  # fmt: skip
UNREADABLE = {"csv"}
"""A row for each span or tag, without the text around it."""
SPANS = {"brat", "label-studio", "doccano", "prodigy", "jsonl"}
"""Formats with spans in place of words."""
REFUSALS = (
    "to brat annotates text files", "needs one label per word", "cannot be written", "cannot be read",
    "has a blank or several", '"spans" must be a list of spans',
)  # fmt: skip


@pytest.fixture(scope="module")
def taggers(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("kept")
    for name in ("tag-columns", "tag-nested"):
        unpacked(name, folder)
    unpacked_runs = {path.parent.name: path.parent for path in folder.rglob("config.json")}
    return {"names": runs / "names", "upos": runs / "upos"} | {
        k: v for k, v in unpacked_runs.items() if k in ("tag-columns", "tag-nested")
    }


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in INPUTS.items():
        Path(name).write_bytes(text.encode())


Labeled = list[list[tuple[str, str]]]


def labels_with_letters(pipeline: Any, sentences: Iterable[tuple[Sequence[str], Sequence[Any]]], to: str) -> Labeled:
    """Return the labels of each sentence with the letters of their spans or words."""
    result = []
    for words, labels in sentences:
        if words and (to in SPANS or (pipeline.labels.has_spans and (to != "docbin" or pipeline.nested))):
            read = (overlapping_spans if pipeline.nested else spans)(labels)
            result.append([(label, "".join("".join(words[a:b]).split())) for label, a, b in read])
        elif words:
            result.append([*zip(words, labels, strict=True)])
    return result


def answers(pipeline: Any, name: str, to: str) -> Labeled:
    read = [(each.sentence.words, each.labels) for each in pipeline.label(pipeline.source(name))]
    if to in SPANS and not pipeline.labels.has_spans:  # a span for each word
        read = [(words, [f"B-{label}" for label in labels]) for words, labels in read]
    return labels_with_letters(pipeline, read, to)


def read_back(pipeline: Any, to: str) -> Labeled:
    if to == "label-studio":  # as a person accepts them
        tasks = json.loads(Path("o.json").read_text())
        Path("o.json").write_text(json.dumps([{**task, "annotations": task["predictions"]} for task in tasks]))
    scheme, splitter = pipeline.labels.scheme or "bio", pipeline.splitter
    source = SentenceSource(NAMES[to], nested=pipeline.nested, scheme=scheme, splitter=splitter)
    several = isinstance(pipeline.labels, LabelColumns)
    column = pipeline.column(source.format) if to == "conllu" else None
    width = len(next((each.columns for each in source if each.words), ""))
    last = [str(number) for number in range(width - 2, width + 1)]  # of the three columns of the tagger
    columns = pipeline.labels.names if several and to == "conllu" else last if several else [column]
    read = [
        (each.words, [*zip(*(source.format.labels(each, name) for name in columns), strict=True)]) for each in source
    ]
    return labels_with_letters(
        pipeline, [(words, [row if several else row[0] for row in rows]) for words, rows in read], to
    )


def check(pipeline: Any, name: str, to: str) -> str:
    """Return how the round trip fails; "" if the labels are equal, or if one line of `REFUSALS` is raised."""
    shutil.rmtree("out", ignore_errors=True)
    try:
        writers.write_predictions(pipeline, name, Path(NAMES[to]), to=to, overwrite=True)
        labels_read = read_back(pipeline, to)
    except EnsueError as error:
        message = str(error)
        return "" if "\n" not in message and any(fragment in message for fragment in REFUSALS) else message
    expected = answers(pipeline, name, to)
    return "" if labels_read == expected else f"{labels_read}\n{expected}"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("to", NAMES)
def test_labels_are_read_back(to: str, taggers: dict[str, Path]) -> None:
    if to == "docbin":
        pytest.importorskip("spacy")
    wrong = {}
    for kind, run in taggers.items():
        pipeline = load(run, device="cpu")
        for name in INPUTS:
            if failure := check(pipeline, name, to):
                wrong[kind, name] = failure
    assert wrong == {}


def test_the_law_detects_a_writer_of_offsets_in_other_units(
    taggers: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: the ends of spans are one character too far."""
    pipeline = load(taggers["names"], device="cpu")
    assert check(pipeline, "mark.txt", "doccano") == ""
    with monkeypatch.context() as patch:
        patch.setitem(writers.UNITS, "characters", lambda text: len(text) + 1)  # type: ignore[arg-type]
        assert check(pipeline, "mark.txt", "doccano") != ""
    writers.write_predictions(pipeline, "a.txt", Path("o.jsonl"), to="jsonl", offsets="bytes", overwrite=True)
    with pytest.raises(DataError, match=r"expected offsets in characters"):
        [*SentenceSource("o.jsonl")]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
@pytest.mark.parametrize("run", ["names", "topics"])
def test_no_column_is_lost(run: str, name: str, runs: Path) -> None:
    """The strings and numbers of a record stay beside its predictions, in CSV and in JSON."""
    pipeline = load(runs / run, device="cpu")
    rows = [*csv.DictReader("".join(writers.write_predictions(pipeline, name, to="csv")).splitlines(keepends=True))]
    lines = "".join(writers.write_predictions(pipeline, name, to="doccano")).splitlines()
    expected = {"a.csv": ("id", "note"), "a.tsv": ("id",), "a.jsonl": ("id", "f", "x")}[name]
    assert rows
    assert all({*expected} <= row.keys() for row in rows)
    assert [str(json.loads(line)["id"]) for line in lines] == ["1", "2"]
    if name == "a.csv":
        assert rows[0]["note"] == "x"
        assert ("line" not in rows[0]) or rows[0]["line"] == "2"
    if run == "names":
        assert rows[0]["text"] == "Anna Novak"


@pytest.mark.parametrize("to", ["csv", *writers.FORMATS])
@pytest.mark.parametrize("run", ["names", "topics"])
def test_keys_of_the_output_keep_the_values_of_a_record(run: str, to: str, runs: Path) -> None:
    """A record has all keys of all formats; the values stay, except for the texts and labels that are predicted."""
    pipeline, keys = load(runs / run, device="cpu"), set[str]()
    Path("a.jsonl").write_text('{"text": "Anna Novak", "label": "x"}\n')
    for format in writers.FORMATS:
        row = json.loads("".join(writers.write_predictions(pipeline, "a.jsonl", to=format)).strip("[]\n "))
        keys |= {*row, *row.get("data", ()), *row.get("meta", ())}
    user_values = {key: f"mine {key}" for key in sorted(keys - {"text", "label", "labels", "spans"})}
    Path("b.jsonl").write_text(json.dumps({"text": "Anna Novak"} | user_values) + "\n")
    output = "".join(writers.write_predictions(pipeline, "b.jsonl", to=to))
    assert len(user_values) >= 8
    assert [value for value in user_values.values() if value not in output] == []


NUMBERS = {"a": "1e5", "b": "1.10", "c": "-0.0", "d": "7", "e": "1E+2", "f": "true"}


@pytest.mark.parametrize("to", ["csv", "jsonl", *writers.FORMATS])
@pytest.mark.parametrize("run", ["names", "topics"])
def test_numbers_of_a_record_keep_their_text(run: str, to: str, runs: Path) -> None:
    """In a record on a line of its own, in a record between rows that are left out, and in the layout of a tool."""
    pipeline = load(runs / run, device="cpu")
    numbers = NUMBERS | {"g": "-0", "h": "123456789012345678901234567890"}
    row, layout = (", ".join(f'"{key}": {each[key]}' for key in each) for each in (numbers, NUMBERS))
    first = '{"text": "Lima", "spans": [], "answer": "reject"}'
    row, layout = (f'{{"text": "Anna Novak", {cells}, "answer": "accept", "spans": []}}' for cells in (row, layout))
    contents = {row: numbers, f"{first}\n{row}\n{first}": numbers, f"[{first}, {row}]": numbers}
    for content, expected in {**contents, f'{{"data": [{layout}]}}': NUMBERS}.items():
        Path("n.json").write_text(content + "\n")
        with warnings.catch_warnings(action="ignore", category=Notice):
            text = "".join(writers.write_predictions(pipeline, "n.json", to=to))
        if to == "csv":
            (cells,) = csv.DictReader(text.splitlines())
            assert {key: cells[key] for key in expected} == expected
        else:
            assert [key for key in expected if f'"{key}": {expected[key]}' not in text] == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("to", writers.FORMATS)
def test_texts_of_a_record_never_become_numbers(to: str, runs: Path) -> None:
    texts = {f"{mark}{code}": f"{mark}{chr(code)}1" for code in range(0xD800, 0xE000) for mark in ("k", 'a"')}
    Path("s.json").write_text(json.dumps({"text": "Anna", "\ud8001": "2"} | texts) + "\n")
    text = "".join(writers.write_predictions(load(runs / "topics", device="cpu"), "s.json", to=to))
    place = json.loads(text)
    place = {"label-studio": lambda: place[0]["data"], "prodigy": lambda: place["meta"]}.get(to, lambda: place)()
    assert {key: place[key] for key in texts} == texts
    assert place["\ud8001"] == "2"


def test_a_key_that_comes_late_is_refused(runs: Path) -> None:
    """A table has its header before its rows."""
    rows = ['{"text": "Anna"}\n'] * 1001 + ['{"text": "Anna", "late": 1}\n']
    Path("late.jsonl").write_text("".join(rows))
    lines = writers.write_predictions(load(runs / "names", device="cpu"), "late.jsonl", to="csv")
    with pytest.raises(EnsueError, match=r'late.jsonl:1002: the key "late" is not in the first records'):
        list(lines)


def test_a_table_without_a_text_is_refused(runs: Path) -> None:
    Path("b.csv").write_text("a,b,c\nAnna sees,Lima is,the old\nthe old,house is,old too\n")
    with pytest.raises(EnsueError, match=r"b.csv: a table in which the column of the text is ambiguous; expected a"):
        load(runs / "names", device="cpu").source("b.csv")
