"""Rows without a label, text or side, in every format, are refused by key, or left out, counted and written back."""

import json
from pathlib import Path
from typing import Any

import pytest

from ensue.data.examples import DocumentSource, PairSource
from ensue.data.examples.layout import DocumentChoice
from ensue.data.records.labeled_files import SKIP_REMEDY
from ensue.data.sentences.source import SentenceSource
from ensue.errors import DataError
from ensue.notices import Notice
from written_files import write_file

GOOD = "good day to you"
TEXTS = {
    "a.csv": (f"label,text\npos,{GOOD}\n,{GOOD}\nneg,\nneg,{GOOD}\n", "1 without a label, 1 without a text", 3),
    "b.csv": (f"label;text\npos;{GOOD}\n;\n;\nneg;{GOOD}\nneg\n", "2 without a label, 1 without a text", 3),
    "c.tsv": (f"label\ttext\npos\t{GOOD}\n\t{GOOD}\nneg\t \nneg\t{GOOD}\nneg\n",
              "1 without a label, 2 without a text", 3),
    "d.jsonl": (
        "".join(json.dumps(row) + "\n" for row in [
            {"text": GOOD, "label": "pos"}, {"text": None, "label": "neg"}, {"label": "neg"},
            {"text": GOOD}, {"text": GOOD, "label": None}, {"text": GOOD, "label": []}, {"text": GOOD, "label": "neg"},
        ]), "2 without a text, 3 without a label", 2,
    ),
    "e.ft": (f"__label__pos {GOOD}\n{GOOD}\n__label__neg\n__label__neg {GOOD}\n",
             "1 without a label, 1 without a text", 2),
}  # fmt: skip
PAIRS = {
    "a.tsv": ("a b\tx y\nc d\t\n\te f\ng h\ti j\nk l\n", "2 without a target, 1 without a source", 2),
    "b.csv": ("source,target\na,x\n,y\nb, \nc,z\n", "1 without a source, 1 without a target", 3),
    "c.jsonl": (
        "".join(json.dumps(row) + "\n" for row in [
            {"source": "a b", "target": "x"}, {"source": None, "target": "y"}, {"source": "b", "target": []},
            {"source": "b"}, {"source": "c d", "target": "z"},
        ]), "1 without a source, 2 without a target", 2,
    ),
}  # fmt: skip
SENTENCES = {
    "a.conll": ("Ann\tB-PER\nleft\tO\n\nBob\nleft\tO\n\nShe\tO\nleft\t\n\nCid\tB-PER\n", 4, 2),
    "b.jsonl": (
        "".join(json.dumps({"tokens": ["Ann", "left"]} | row) + "\n" for row in [
            {"labels": ["B-PER", "O"]}, {"labels": None}, {}, {"labels": ["O", "O"]},
        ]), 2, 2,
    ),
    "c.conllu": ("".join(
        f"# text = Ann left\n1\tAnn\t_\t{first}\t_\t_\t0\t_\t_\t_\n2\tleft\t_\t{second}\t_\t_\t0\t_\t_\t_\n\n"
        for first, second in [("PROPN", "VERB"), ("PROPN", "_"), ("_", "_"), ("NOUN", "VERB")]
    ), 6, 2),
}  # fmt: skip


def documents(path: Path, **options: Any) -> DocumentSource:
    return DocumentSource(str(path), DocumentChoice(), **options)


@pytest.mark.parametrize("name", TEXTS)
def test_texts_without_a_label_or_text_are_refused_or_left_out(name: str, tmp_path: Path) -> None:
    content, lacks, line = TEXTS[name]
    path = write_file(tmp_path / name, content)
    with pytest.raises(DataError) as error:
        list(documents(path))
    assert error.value.in_options().endswith(SKIP_REMEDY)
    assert f"{name}:{line}: " in str(error.value)
    source = documents(path, incomplete="skip")
    total = sum(int(count[0]) for count in lacks.split(", "))
    with pytest.warns(Notice, match=f":{line}: the first row that .* leaves out; in total {total} rows: "):
        read = list(source)
    assert str(source.skipped).endswith(f"rows: {lacks}")
    assert [(document.texts, document.labels) for document in read] == [((GOOD,), ("pos",)), ((GOOD,), ("neg",))]
    assert "".join(source.write(each, each.labels) for each in read) + source.rest == content


def test_a_complete_row_needs_a_group(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.csv", f"label;text;who\npos;{GOOD};Ann\n;;\nneg;{GOOD};\n")
    source = DocumentSource(str(path), DocumentChoice(group="who"), incomplete="skip")
    with pytest.raises(DataError, match=r"a.csv:4: no group in column 3"):
        list(source)


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_without_a_side_are_refused_or_left_out(name: str, tmp_path: Path) -> None:
    content, lacks, line = PAIRS[name]
    path = write_file(tmp_path / name, content)
    with pytest.raises(DataError) as error:
        list(PairSource(path))
    assert error.value.in_options().endswith(SKIP_REMEDY)
    source = PairSource(path, incomplete="skip")
    with pytest.warns(Notice, match=f":{line}: the first row that "):
        assert len(list(source)) == 2
    assert str(source.skipped).endswith(f"rows: {lacks}")


def test_empty_lines_of_aligned_files_are_refused_or_left_out(tmp_path: Path) -> None:
    for name, content in {"a.en": "a\n\nc\nd\n", "a.de": "x\ny\n \nz\n", "b.de": "x\n\nz\n"}.items():
        (tmp_path / name).write_text(content)
    source = PairSource(f"{tmp_path}/a.en,{tmp_path}/a.de", incomplete="skip")
    with pytest.warns(Notice, match=r"a.en:2: the first row .* total 2 rows: 1 without a source, 1 without a target"):
        assert [pair.targets for pair in source] == [("x",), ("z",)]
    with pytest.raises(DataError, match="3 lines, but"):
        list(PairSource(f"{tmp_path}/a.en,{tmp_path}/b.de", incomplete="skip"))


@pytest.mark.parametrize("name", SENTENCES)
def test_sentences_without_labels_are_refused_or_left_out(name: str, tmp_path: Path) -> None:
    content, line, count = SENTENCES[name]
    path = write_file(tmp_path / name, content)
    if name != "b.jsonl":
        with pytest.raises(DataError, match=r":\d+: (a word without a label; .*data.incomplete|expected 2 columns)"):
            list(SentenceSource(path, labeled=[None]))
    source = SentenceSource(path, labeled=[None], incomplete="skip")
    with pytest.warns(Notice, match=f":{line}: the first sentence .* total {count} sentences: {count} without a label"):
        read = list(source)
    assert len(read) == 2
    assert "".join(sentence.source.text for sentence in read) + source.rest == content
    same = [source.format.write(sentence, source.format.labels(sentence)) for sentence in read]
    assert "".join([*same, source.rest]) == content  # omitted rows keep their values


def test_each_reading_counts_from_zero(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.csv", TEXTS["a.csv"][0])
    source = documents(path, incomplete="count")
    for _ in range(2):
        assert len(list(source)) == 2
        assert source.skipped.missing.total() == 2
