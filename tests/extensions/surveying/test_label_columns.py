"""Columns of labels: their names in headers of many languages, columns of 0 and 1, and lists in fields."""

import json
from pathlib import Path
from unicodedata import normalize

import pytest

from ensue.data.detection.pair_tables import HEADER_WORDS
from ensue.data.examples import DocumentSource
from ensue.data.examples.document_columns import FLAGS, find_columns
from ensue.data.examples.layout import BOOLEAN_VALUES, DocumentChoice, split_labels
from ensue.data.records.record import Column
from ensue.errors import DataError
from ensue.extensions.surveying.documents import DocumentReport, DocumentSummary
from ensue.extensions.surveying.summary import summarize

LABELS, TEXTS = (
    [name for group in HEADER_WORDS[key] for name in group if len(group) > 1] for key in ("labels", "texts")
)
COMMON = {*LABELS} & {*TEXTS}


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_all_usual_names_of_columns_are_recognized(form: str) -> None:
    """Names are recognized in all languages, although the column "Status" also has few values."""
    assert set() == COMMON
    for number, label in enumerate(LABELS):
        text = TEXTS[number % len(TEXTS)]
        header = ["Nr", "Datum", normalize(form, text.capitalize()), normalize(form, label.capitalize()), "Status"]
        rows = [header, *([str(n), f"{n}.1.2027", f"day number {n}", "xyz"[n % 3], "ab"[n % 2]] for n in range(12))]
        columns = find_columns(rows, DocumentChoice(), "x")
        assert (columns.labels, columns.texts) == (Column(4, header[3]), (Column(3, header[2]),)), (label, text)


FLAG_ROWS = [("so bad", "10"), ("so good", "00"), ("so odd", "01"), ("so both", "11")] * 3
EXPECTED = [("rude",), (), ("odd",), ("rude", "odd")] * 3
WRITERS = {
    "a.csv": (",", "\n"), "a.tsv": ("\t", "\r\n"), "b.csv": (";", "\n"), "a.jsonl": ("", "\n"),
}  # fmt: skip


def write_flags(path: Path, forms: tuple[str, str]) -> None:
    delimiter, end = WRITERS[path.name]
    cells = [(text, *(forms[int(digit)] for digit in digits)) for text, digits in FLAG_ROWS]
    rows = [delimiter.join(row) for row in [("text", "rude", "odd"), *cells]]
    if not delimiter:
        values = [(json.dumps(text), *(_as_json(flag) for flag in flags)) for text, *flags in cells]
        rows = [f'{{"text": {text}, "rude": {rude}, "odd": {odd}}}' for text, rude, odd in values]
    path.write_text(end.join(rows) + end, newline="")


def _as_json(flag: str) -> str:
    return flag if flag in ("0", "1", "0.0", "1.0", "true", "false") else json.dumps(flag)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("forms", BOOLEAN_VALUES)
def test_columns_of_flags_are_several_labels(tmp_path: Path, name: str, forms: tuple[str, str]) -> None:
    """The error and `ensue data` name the setting, and labels are written with the values of the file."""
    path = tmp_path / name
    write_flags(path, forms)
    with pytest.raises(DataError) as raised:
        DocumentSource(path)
    assert "; --set data.labels=rude,odd reads columns of 0 and 1 as several labels" in raised.value.in_options()
    assert "; --labels rude,odd reads columns of 0 and 1" in raised.value.with_options().in_options()
    summary = summarize(path)
    assert isinstance(summary, DocumentSummary)
    assert 'data.labels="rude,odd"' in [*DocumentReport(summary, {}).settings()]
    source = DocumentSource(path, DocumentChoice(labels="rude,odd"))
    documents = [*source]
    assert [document.labels for document in documents] == EXPECTED
    assert "".join(source.write(document, document.labels) for document in documents) == path.read_bytes().decode()
    path.write_text(
        "".join(source.write(document, labels) for document, labels in zip(documents, EXPECTED[::-1], strict=True)),
        newline="",
    )
    assert [document.labels for document in DocumentSource(path, DocumentChoice(labels="rude,odd"))] == EXPECTED[::-1]
    values = {cell.strip('"') for cell in path.read_text().replace("}", ",").replace(": ", ",").split(",")}
    assert name != "a.jsonl" or {*forms} <= values


def test_two_texts_may_be_a_pair_of_source_and_target(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"day {n} is fine\tder Tag {n} ist gut\t{'ab'[n % 2]}\n" for n in range(12)))
    summary = summarize(path)
    assert summary.error is not None
    assert (
        "; --words 1 or --words 2 names it; --sources 1 --targets 2 reads pairs"
        in summary.error.with_options().in_options()
    )
    assert [*summarize(path, sources="1", targets="2").detected][:1] == ["pairs"]


def test_flags_must_be_0_or_1_and_a_single_column_is_one_label(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,rude,odd\nso good,1,2\nso bad,0,1\n")
    with pytest.raises(DataError, match=r'a.csv:2: column 3 "odd": expected 0 or 1, found '):
        [*DocumentSource(path, DocumentChoice(labels="rude,odd"))]
    assert [d.labels for d in DocumentSource(path, DocumentChoice(labels="rude"))] == [("1",), ("0",)]
    assert {*FLAGS.values()} == {True, False}


@pytest.mark.parametrize(
    ("field", "labels"),
    [
        ('["a", "b"]', ("a", "b")), ("['a', 'b']", ("a", "b")), ('["caf\\u00e9"]', ("café",)), ("[3, 7]", ("3", "7")),
        ("[x]", ("[x]",)), ("[1", ("[1",)), ("[[1]]", ("[[1]]",)), 
        ("[" * 5000 + "]", ("[" * 5000 + "]",)),
    ],
)  # fmt: skip
def test_a_list_in_a_field_is_several_labels(tmp_path: Path, field: str, labels: tuple[str, ...]) -> None:
    assert split_labels(field, "") == labels
    assert split_labels("[]", "") == ()
    path = tmp_path / "a.tsv"
    path.write_text(f"text\tlabel\nso good\t{field}\nso\t\n")
    source = DocumentSource(path, DocumentChoice(is_labeled=False))
    document = next(iter(source))
    assert source.write(document, labels) == document.before + document.source
    if labels[0] != field:
        written = source.write(document, ("new", "a b"))
        assert written.endswith('so good\t["new", "a b"]\n')


@pytest.mark.parametrize(
    ("labels", "separator"),
    [
        (["a|b", "a", "b"], "|"), (["a, b", "a", "b"], ","), (["a;b;c", "b;c", "a", "c"], ";"),
        (["3,7", "3", "7"], ","),
        (["Paris, France", "London, UK", "Lyon, France"], ""), (["a", "b"], ""),
        (["a#b", "a", "b"], "#"), (["C#", "C", "F#", "F", "Java"], ""),
    ],
)  # fmt: skip
def test_the_separator_of_labels_is_proposed(tmp_path: Path, labels: list[str], separator: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n" + "".join(f"so {n}\t{label}\n" for n, label in enumerate(labels * 3)))
    summary = summarize(path)
    assert isinstance(summary, DocumentSummary)
    settings = [*DocumentReport(summary, {}).settings()]
    assert settings == ([f"data.separator={separator}"] if separator else [])
