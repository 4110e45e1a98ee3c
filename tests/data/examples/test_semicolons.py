"""CSV with semicolons: detection, reading, and writing back byte for byte."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.detection.format_table import csv_format
from ensue.data.detection.kind import detect
from ensue.data.examples import DocumentLayout, DocumentSource, PairSource
from ensue.data.examples.layout import DocumentChoice
from ensue.data.lines import Lines
from ensue.data.records.quoting import declared_delimiter, detect_delimiter
from ensue.data.records.tables import DIALECTS
from ensue.errors import DataError

EXPORT = 'text;label;price\r\n"Gut; sehr, sehr ""gut""";pos;1,50\r\nSchlecht, leider;neg;2,00\r\nNa ja;neg;0,75\r\n'


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        (EXPORT, ";"), ("a;b\n1,5;2,5\n3,5;4,5\n", ";"), ("text,label\na; b,x\nc; d; e,y\n", ","),
        ('"text";"label"\n"a, b";"x"\n', ";"), ('"text","label"\n"a; b","x"\n', ","), ("text\na; b\nc\n", ","),
        ("a;b,c;d\n", ","), ("", ","), ('text;label\n"a\nb', ";"),
    ],
)  # fmt: skip
def test_the_delimiter_gives_rows_of_equal_width(text: str, delimiter: str) -> None:
    assert detect_delimiter(Lines([text], "x"), "x") == delimiter


def test_an_export_is_read_and_written_back(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(EXPORT.encode())
    for format in ("", "csv", "csv-semicolon"):
        source = DocumentSource(path, format=format)
        result = list(source)
        assert str(source.layout) == 'csv-semicolon with a header, label: column 2 "label", text: column 1 "text"'
        assert [document.texts + document.labels for document in result] == [
            ('Gut; sehr, sehr "gut"', "pos"), ("Schlecht, leider", "neg"), ("Na ja", "neg"),
        ]  # fmt: skip
        assert "".join(source.write(document, document.labels) for document in result) + source.rest == EXPORT
    changed = "".join(source.write(document, ["a;b, c"], [0.5]) for document in result)
    rows = list(csv.reader(io.StringIO(changed), delimiter=";"))
    assert rows[0] == ["text", "label", "price", "probability"]
    assert [row[1:] for row in rows[1:]] == [["a;b, c", price, "0.5000"] for price in ("1,50", "2,00", "0,75")]


@given(
    st.lists(st.tuples(st.text(st.sampled_from('a";, \n'), max_size=6), st.sampled_from(["x", "y"])), min_size=1),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from([("csv", ","), ("csv-semicolon", ";"), ("csv-tab", "\t")]),
)
def test_csv_of_python_is_read_and_written_back(
    rows: list[tuple[str, str]], quoting: int, kind: tuple[str, str]
) -> None:
    format, delimiter = kind
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=delimiter, quoting=quoting, lineterminator="\n")
    writer.writerows([("text", "label"), *rows])
    source = DocumentSource(Lines([buffer.getvalue()], "x"), DocumentChoice(is_labeled=False), format=format)
    result = list(source)
    assert [(*document.texts, *document.labels) for document in result] == rows
    assert "".join(source.write(document, document.labels) for document in result) == buffer.getvalue()


def test_a_run_reads_files_with_commas_and_with_semicolons(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,text\nx,a b\n")
    run = DocumentSource(tmp_path / "a.csv").layout
    assert run.format == "csv"
    (tmp_path / "b.csv").write_text("text;label\na, b;y\n")
    (document,) = DocumentSource(tmp_path / "b.csv", like=run)
    assert (document.texts, document.labels) == (("a, b",), ("y",))


def test_semicolons_are_detected(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(EXPORT)
    for format in ("", "csv"):
        detected = detect(tmp_path / "a.csv", format=format)
        assert (detected.kind, detected.format, detected.is_default) == ("texts", "csv-semicolon", True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (EXPORT + "a;b\n", r"x:5: 2 columns; expected 3 as in line 1"),
        (EXPORT + '"a"b;c;d\n', r"x:5: expected a semicolon after the closing quote, found 'b;c;d'"),
        (EXPORT + 'a;"b;c\n', r"x:5: the quote that opens here is not closed"),
        (EXPORT + "a;;c\n", r"x:5: no label in column 2"),
    ],
)
def test_wrong_rows_are_reported_with_the_line(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(DocumentSource(Lines([text], "x"), format="csv"))


def test_layouts_with_semicolons_are_saved() -> None:
    layout = DocumentSource(Lines([EXPORT], "x"), format="csv").layout
    assert DocumentLayout.from_json(layout.to_json()) == layout


def test_a_first_line_can_name_the_delimiter_as_in_excel() -> None:
    for text, format in (
        ("sep=;\r\n" + EXPORT, "csv-semicolon"),
        ("sep=,\na,b\n1,2\n", "csv"),
        ('"sep=\t"\na\tb\n', "tsv"),
    ):
        assert csv_format(Lines([text], "x.csv")) == format
    source = DocumentSource(Lines(["sep=;\r\n" + EXPORT], "stdin"))
    result = list(source)
    assert [document.line for document in result] == [3, 4, 5]
    assert "".join(source.write(document, document.labels) for document in result) + source.rest == "sep=;\r\n" + EXPORT
    sides = 'sep=;\nsource;target\n"a;b";c\n'
    assert [pair[:2] for pair in PairSource(Lines([sides], "stdin"))] == [(("a;b",), ("c",))]
    assert declared_delimiter("sep=; a text") == declared_delimiter("a\n") == ""


TITLES = (
    "Report 2026;;;\r\n",
    "Report;;;\r\nof May;;;\r\n;;;\r\n",
    '"A title\nof two lines";;;\n',
    "sep=;\nReport;;;\n",
)
TABLE = "No;Product;Kind;Comment\r\n" + "".join(
    f"{n};;{('good', 'bad')[n % 2]};a {('fine', 'poor')[n % 2]} day {n}\r\n" for n in range(12)
)


@pytest.mark.filterwarnings("ignore:.*skipped as a title:")
@pytest.mark.parametrize("title", TITLES)
@pytest.mark.parametrize("delimiter", [";", ",", "\t"])
def test_a_title_above_a_table_is_left_out_and_written_back(title: str, delimiter: str) -> None:
    text, name = (title + TABLE).replace(";", delimiter), "x.tsv" if delimiter == "\t" else "x.csv"
    source = DocumentSource(Lines([text], name), DocumentChoice(labels="Kind"))
    result = [*source]
    assert [(*document.texts, *document.labels) for document in result][:2] == [
        ("a fine day 0", "good"), ("a poor day 1", "bad"),
    ]  # fmt: skip
    assert "".join(source.write(document, document.labels) for document in result) + source.rest == text


@pytest.mark.parametrize("text", ["text;;\na b c;x;\n", "a;;\n" * 12, "a;b\n;\nc;d\n", ";;\n;;\n"])
def test_short_rows_are_a_title_only_before_rows_of_three(text: str) -> None:
    dialect = next(dialect for dialect in DIALECTS if dialect.name == "csv-semicolon")
    rows = [*dialect.rows_of_file(enumerate(text.splitlines(keepends=True), 1), "")]
    assert "".join(row.record.before + row.record.text for row in rows) == text
    assert len(rows) == text.count("\n")
