"""`ensue predict --to`: written labels are read back, and rows have the places of their texts."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from command_fixtures import Ensue
from ensue.data.examples import DocumentSource
from ensue.data.examples.layout import DocumentChoice
from ensue.data.sentences.conllu import Conllu
from ensue.data.sentences.source import SentenceSource
from ensue.extension import entries
from ensue.extensions.annotation_formats.writers import UNITS
from ensue.library import load
from kept_runs.make import unpacked

TEXTS = {"a.txt": "😀 Anna Novak sees Lima.\r\n\r\n  the old house\n", "below/b.txt": "Lima\nAnna é sees Anna"}
WRITTEN = {
    "conll": "x.conll", "conllu": "x.conllu", "doccano": "x.jsonl", "prodigy": "x.jsonl", "label-studio": "x.json",
}  # fmt: skip


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def texts() -> Path:
    for name, text in TEXTS.items():
        path = Path("texts", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return Path("texts")


def predicted(run: Path) -> list[list[str]]:
    lines = [line for text in TEXTS.values() for line in text.replace("\r", "").split("\n") if line.strip()]
    return [sentence.labels for sentence in load(run, device="cpu").predict(lines)]


def test_every_format_has_a_writer() -> None:
    assert {*entries("writer")} == {*WRITTEN, "brat", "docbin", "csv", "jsonl"}


@pytest.mark.parametrize("format", WRITTEN)
def test_written_sentences_are_read_back(format: str, ensue: Ensue, runs: Path, texts: Path) -> None:
    ensue("predict", runs / "names", texts, "--to", format, "--out", WRITTEN[format])
    if format == "label-studio":
        tasks = json.loads(Path("x.json").read_text())
        for task in tasks:
            (prediction,) = task.pop("predictions")
            assert prediction["model_version"] == "names"
            assert all(0 <= result["score"] <= 1 for result in prediction["result"])
            task["annotations"] = [prediction]
        Path("x.json").write_text(json.dumps(tasks))
    source = SentenceSource(WRITTEN[format], words=None)
    column = "misc.NER" if format == "conllu" else None
    assert [[*source.format.labels(each, column)] for each in source if each.words] == predicted(runs / "names")


@pytest.mark.parametrize("unit", UNITS)
def test_offsets_of_json_lines_are_places_in_the_document(unit: str, ensue: Ensue, runs: Path, texts: Path) -> None:
    rows = [
        json.loads(line)
        for line in ensue("predict", runs / "names", texts, "--to", "jsonl", "--offsets", unit).out.splitlines()
    ]
    assert [(row["document"], row["line"]) for row in rows] == [
        *(("texts/a.txt", number) for number in (1, 2, 3)), *(("texts/below/b.txt", number) for number in (1, 2)),
    ]  # fmt: skip
    assert sum(len(row["spans"]) for row in rows) > 3
    for row in rows:
        document = Path(row["document"]).read_bytes()
        units = {
            "characters": document.decode(), "bytes": document, "utf-16": document.decode().encode("utf-16-le"),
        }[unit]  # fmt: skip
        size = 2 if unit == "utf-16" else 1
        for part in (row, *row["spans"]):
            excerpt = units[size * part["start"] : size * part["end"]]
            excerpt = excerpt if isinstance(excerpt, str) else excerpt.decode("utf-16-le" if size == 2 else "utf-8")
            assert excerpt == part["text"]


def test_brat_is_written_beside_the_texts_or_in_a_folder(
    ensue: Ensue, refused: Callable[..., str], runs: Path, texts: Path
) -> None:
    ensue("predict", runs / "names", texts, "--to", "brat", "--out", "new")
    assert Path("new/a.txt").read_bytes() == TEXTS["a.txt"].encode()
    source = SentenceSource("new")
    assert [[*source.format.labels(each)] for each in source if each.words] == predicted(runs / "names")
    ensue("predict", runs / "names", texts, "--to", "brat")
    for name in ("a.ann", "below/b.ann"):
        assert Path("new", name).read_text() == Path("texts", name).read_text()
    Path("texts/a.ann").write_text("")  # of a person
    assert "is the same as" in refused("predict", runs / "names", texts, "--to", "brat")
    ensue("predict", runs / "names", texts, "--to", "brat", "--out", "again")  # reads the annotations with the texts
    assert Path("again/a.ann").read_text() == Path("new/a.ann").read_text()
    rows = ensue("predict", runs / "names", "texts/a.ann", "--to", "jsonl").out.splitlines()
    assert [(row["document"], row["line"], row["start"]) for row in map(json.loads, rows)] == [
        ("texts/a.txt", 1, 0), ("texts/a.txt", 3, len("😀 Anna Novak sees Lima.\r\n\r\n")),
    ]  # fmt: skip
    assert "expected .txt or .ann" in refused("predict", runs / "names", "-", "--to", "brat", stdin=b"Anna\n")


def test_spans_are_rows_of_a_table(ensue: Ensue, runs: Path, texts: Path) -> None:
    header, *rows = ensue("predict", runs / "names", texts, "--to", "csv").out.splitlines()
    assert header == "document,line,start,end,text,label,probability"
    for row in rows:
        name, _, start, end, text, _, probability = row.split(",")
        assert Path(name).read_bytes().decode()[int(start) : int(end)] == text
        assert 0 < float(probability) <= 1


@pytest.mark.parametrize("delimiter", ["\t", ","])
def test_a_table_keeps_its_columns(delimiter: str, ensue: Ensue, runs: Path) -> None:
    Path("a.csv" if delimiter == "," else "a.tsv").write_text(
        "".join(delimiter.join(row) + "\n" for row in (("id", "text"), ("7", "a song"), ("9", "the team won")))
    )
    name = "a.csv" if delimiter == "," else "a.tsv"
    header, *rows = ensue("predict", runs / "topics", name, "--to", "csv").out.splitlines()
    assert header == "id,text,label,probability"
    assert [row.split(",")[:2] for row in rows] == [["7", "a song"], ["9", "the team won"]]


def test_a_text_file_of_excel_becomes_a_csv_file(ensue: Ensue, runs: Path) -> None:
    Path("a.txt").write_bytes(b'id\ttext\r\n7\t"a ""song""\n\nof ours"\r\n')
    ensue("predict", runs / "topics", "a.txt", "--out", "x.csv")
    with Path("x.csv").open(newline="") as file:
        header, row = csv.reader(file)
    assert (header, row[:2]) == (["id", "text", "label", "probability"], ["7", 'a "song"\n\nof ours'])


@pytest.mark.parametrize("format", ["doccano", "prodigy", "label-studio", "jsonl"])
def test_labels_of_texts_are_read_back(format: str, ensue: Ensue, runs: Path) -> None:
    Path("a.json").write_text('{"id": 7, "text": "a song"}\n{"id": 9, "text": "the team won"}\n')
    ensue("predict", runs / "topics", "a.json", "--to", format, "--out", "x.json")
    text = Path("x.json").read_text()
    assert text.count('"id": 7') == 1
    if format == "label-studio":
        tasks = json.loads(text)
        labels = [tuple(task["predictions"][0]["result"][0]["value"]["choices"]) for task in tasks]
    else:
        key = {"doccano": "label", "prodigy": "accept", "jsonl": "labels"}[format]
        source = DocumentSource("x.json", DocumentChoice(texts=("text",), labels=key))
        labels = [document.labels for document in source]
    answers = load(runs / "topics", device="cpu").predict(["a song", "the team won"])
    assert labels == [answer.labels for answer in answers]


def test_a_tagger_of_several_columns_writes_them_all(ensue: Ensue, tmp_path: Path) -> None:
    unpacked("tag-columns", tmp_path)
    run = next(path.parent for path in tmp_path.rglob("config.json"))
    Path("b.txt").write_text('Anna sees Lima\n"Anna" sees (Lima), too.\n')
    Path("b.conllu").write_text(written := ensue("predict", run, "b.txt", "--to", "conllu").out)
    assert [row.split("\t")[1] for row in written.splitlines()[:4] if "\t" in row] == ["Anna", "sees", "Lima"]
    surfaces = [Conllu().surface(sentence).text for sentence in SentenceSource("b.conllu")]
    assert surfaces == Path("b.txt").read_text().splitlines()  # SpaceAfter=No marks words without a blank after them
    row, _ = map(json.loads, ensue("predict", run, "b.txt", "--to", "jsonl").out.splitlines())
    (answer,) = load(run, device="cpu").predict(["Anna sees Lima"])
    assert [span["label"] for span in row["spans"]] == [word.columns for word in answer]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "doccanoo"], 'unknown format "doccanoo"; did you mean "doccano"?'),
        (["--out", "x"], "--out and --offsets need --to FORMAT"),
        (["--to", "csv", "--json"], "--to cannot be combined with --json or --shard"),
        (["--to", "jsonl", "--offsets", "bits"], "--offsets bits: expected one of characters, utf-16, bytes"),
        (["--to", "brat", "--offsets", "bytes"], "--to brat needs --offsets characters"),
        (["--to", "docbin"], "--to docbin needs --out FILE.spacy"),
        (["--to", "csv", "--out", "a.tsv"], "a.tsv: is the same as a.tsv, which is read; choose another place"),
        (["--to", "csv", "--out", "b.tsv"], "b.tsv: exists; --overwrite replaces it"),
    ],
)  # fmt: skip
def test_invalid_formats_offsets_and_paths_are_refused(
    arguments: list[str], message: str, refused: Callable[..., str], runs: Path
) -> None:
    for name in ("a.tsv", "b.tsv"):
        Path(name).write_text("music\ta song\n")
    assert refused("predict", runs / "names", "a.tsv", *arguments).startswith(message)
    assert Path("b.tsv").read_text() == "music\ta song\n"


def test_brat_is_refused_for_classifiers(refused: Callable[..., str], runs: Path) -> None:
    Path("a.txt").write_text("a song\n")
    assert refused("predict", runs / "topics", "a.txt", "--to", "brat").startswith("--to brat is for taggers; ")


def test_documents_of_spacy_are_read_back(ensue: Ensue, runs: Path, texts: Path) -> None:
    pytest.importorskip("spacy")
    ensue("predict", runs / "names", texts, "--to", "docbin", "--out", "x.spacy")
    source = SentenceSource("x.spacy")
    assert [[*source.format.labels(each)] for each in source if each.words] == predicted(runs / "names")


def test_the_suffix_of_the_output_determines_its_format(
    ensue: Ensue, refused: Callable[..., str], runs: Path, texts: Path
) -> None:
    ensue("predict", runs / "names", texts, "--out", "x.csv")
    assert Path("x.csv").read_text() == ensue("predict", runs / "names", texts, "--to", "csv").out
    for name, format in (("y.csv", "csv"), ("y.tsv", "tsv"), ("y.jsonl", "jsonl"), ("y.json", "label-studio")):
        ensue("choose", runs / "topics", texts, "--count", 2, "--out", name)
        lines = ensue("choose", runs / "topics", texts, "--count", 2, "--format", format)
        assert Path(name).read_text() == lines.out
    header, row, _ = Path("y.csv").read_text().splitlines()
    assert header == "text,prediction,probability"
    assert row.split(",")[1] in load(runs / "topics").labels.names
    choose = "choose", runs / "topics", texts, "--count", 2
    assert 'unknown format "txt"; expected' in refused(*choose, "--out", "y.txt")
    predict = "predict", runs / "names", texts
    for suffix, command in (
        ("csv", (*choose, "--format", "doccano")), ("csv", (*predict, "--to", "label-studio")),
        ("jsonl", (*choose, "--format", "label-studio")), ("jsonl", (*predict, "--to", "label-studio")),
    ):  # fmt: skip
        message = rf"z\.{suffix}: --\w+ \S+ does not write \.{suffix}; expected another"
        assert re.search(message, refused(*command, "--out", f"z.{suffix}"))
