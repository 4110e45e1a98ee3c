"""Notes and commands of `ensue data` for data that can be read in several ways."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from ensue.extensions.surveying.documents import DocumentSummary
from ensue.extensions.surveying.summary import _make_report, propose, summarize

JUDGED = [{"text": f"day {n}", "label": "good", "answer": ("accept", "reject", "ignore")[n % 3]} for n in range(9)]
ANSWERS = [{"id": n, "text": f"day {n}", "label": [f"der Tag Nummer {n} ist schön"]} for n in range(9)]
LOCATIONS = ["LOC", "Loc."] * 2
ARFF = "@relation demo\n@attribute x numeric\n@attribute class {a,b}\n@data\n" + "1.5,a\n2,b\n" * 9
FILES: dict[str, tuple[str, str, Sequence[str]]] = {
    "answers of Prodigy": ("".join(json.dumps(row) + "\n" for row in JUDGED), "a.jsonl", ["data.labels=answer"]),
    "texts as labels": ("".join(json.dumps(row) + "\n" for row in ANSWERS), "a.jsonl",
        ["note: most labels are texts that occur once; --sources text --targets label reads pairs"]),
    "texts without blanks": ("".join(f"{'好坏'[n % 2]}\t今天的天气真的很不错{n}\n" for n in range(12)), "a.tsv",
        ["note: texts have no blanks; data.splitter=characters", "--set data.splitter=characters"]),
    "names in texts without blanks": (
        "".join(json.dumps({"text": "我在北京工作", "spans": [[2, 4, "LOC"]]}) + "\n" for _ in range(3)), "a.jsonl",
        ["note: 3 of 3 spans (100.0%) begin or end inside of a word, the first at", "--set data.splitter=characters"]),
    "few names in compounds": (
        "".join(json.dumps({"text": "nach Ulm" + "bahn" * (n < 2), "spans": [[5, 8, "A"]]}) + "\n" for n in range(40)),
        "a.jsonl", ["note: 2 of 40 spans (5.0%) begin or end inside of a word", "correct the misaligned spans",
                    "--train {} --out"]),
    "inflection with a header": ("lemma\tform\ttags\n" + "".join(f"wort{n}\twort{n}te\tV;PST\n" for n in range(40)),
        "a.tsv",
        ["recipe: transduce-few, "]),
    "classes of spans": (
        "".join(json.dumps({"text": "a b", "spans": [[0, 1, "LOC"], [2, 3, name]]}) + "\n" for name in LOCATIONS),
        "a.jsonl", ["note: 1 label looks misspelled: Loc. 2, similar to LOC; the first at", "a.jsonl:2\n"]),
    "numbers": ("  1.0e+00  2.5  -3\n" * 9, "a.txt", ["note: nearly all words are numbers; for frames, separate"]),
    "ARFF": (ARFF, "a.arff", ["note: an ARFF file; "]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*rows left out")
@pytest.mark.parametrize("name", FILES)
def test_other_readings_of_the_data_are_noted(tmp_path: Path, name: str) -> None:
    content, file, expected = FILES[name]
    (tmp_path / file).write_text(content)
    report = _make_report(summarize(tmp_path / file), {})
    assert report.summary.error is None
    assert [line for line in expected if line.format(tmp_path / file) not in report.text()] == []
    assert bool(report.command()) == (name != "ARFF")


@pytest.mark.parametrize(("columns", "many"), [(("text",), "classify-lstm"), (("text1", "text2"), "classify-pairs")])
def test_the_classifier_depends_on_the_number_of_texts_or_pairs(
    tmp_path: Path, columns: tuple[str, ...], many: str
) -> None:
    rows = [{"label": "no" if n % 2 else "yes", **{name: f"{name} of row {n}" for name in columns}} for n in range(30)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = summarize(path)
    assert isinstance(summary, DocumentSummary)
    report = _make_report(summary, {})
    assert (report.recipe()[0], len(summary.lengths)) == ("classify-linear", len(columns))
    summary.size = 3_001
    assert report.recipe()[0] == many


def test_several_columns_of_labels_have_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("Ann NNP B-PER\nleft VBD O\n\n" * 9)
    assert [propose(str(path), [f"data.labels={value}"])[0] for value in ('["2", "3"]', "[2,3]", "2", "['3']")] == [
        "tag-columns", "tag-columns", "tag-linear", "tag-linear",
    ]  # fmt: skip
