"""Reading of labeled texts in every format, and errors of one line."""

import csv
import gzip
import io
import json
import lzma
import re
import time
import tracemalloc
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.examples import Document, DocumentLayout, DocumentSource
from ensue.data.examples.formats import detect_documents, read_documents
from ensue.data.examples.layout import DocumentChoice
from ensue.data.lines import Lines
from ensue.data.records.record import Column
from ensue.errors import DataError

LABEL_TEXT = [
    (("pos",), ("a stirring film , truly",)),
    (("neg",), ("so very very bad",)),
    (("pos",), ("fine , it is",)),
]
FILES = {
    "a.tsv": "pos\ta stirring film , truly\nneg\tso very very bad\npos\tfine , it is\n",
    "b.tsv": "text\tlabel\na stirring film , truly\tpos\nso very very bad\tneg\nfine , it is\tpos\n",
    "c.txt": "pos\ta stirring film , truly\nneg\tso very very bad\npos\tfine , it is",
    "a.csv": 'sentiment,review\npos,"a stirring film , truly"\n"neg",so very very bad\npos,"fine , it is"\n',
    "a.jsonl": '{"text": "a stirring film , truly", "label": "pos"}\n\n{"label": "neg", "text": "so very very bad"}\n'
    '{"text": "fine , it is", "label": "pos", "id": 3}\n',
    "a.txt": "pos a stirring film , truly\nneg so very very bad\npos fine , it is\n",
    "d.txt": "__label__pos a stirring film , truly\n__label__neg so very very bad\n__label__pos fine , it is\n",
    "e.txt": "a stirring film , truly __label__pos\nso very very bad __label__neg\nfine , it is\t__label__pos\n",
}


def write_file(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(lzma.compress(data) if name.endswith(".xz") else gzip.compress(data) if "gz" in name else data)
    return path


def lines_of(text: str, name: str = "stdin") -> Lines:
    return Lines([text], name)


def documents(path: Path, choice: DocumentChoice | None = None, **options: str) -> list[Document]:
    return list(DocumentSource(path, choice, **options))


def contents(result: list[Document]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(document.labels, document.texts) for document in result]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("compression", ["", ".gz", ".xz"])
@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_documents(tmp_path: Path, name: str, compression: str, ending: str) -> None:
    path = write_file(tmp_path, name + compression, "\ufeff" + FILES[name].replace("\n", ending))
    result = documents(path)
    assert contents(result) == LABEL_TEXT
    first = 2 if name in ("b.tsv", "a.csv") else 1
    lines = [first, first + 1 + (name == "a.jsonl"), first + 2 + (name == "a.jsonl")]
    assert [(document.path, document.line) for document in result] == [(str(path), line) for line in lines]
    assert "".join(document.before + document.source for document in result) == FILES[name].replace("\n", ending)


def test_folders_with_a_folder_for_each_class_are_read(tmp_path: Path) -> None:
    for name, text in {
        "b/2.txt": "two\nlines\n", "a/x.txt.xz": "one", "b/10.txt.gz": "", "a/.x": "", ".git/y": "",
    }.items():  # fmt: skip
        write_file(tmp_path, name, text)
    write_file(tmp_path, "README", "not a class")
    source = DocumentSource(tmp_path)
    assert source.layout == DocumentLayout("folders")
    result = list(source)
    assert contents(result) == [(("a",), ("one",)), (("b",), ("",)), (("b",), ("two\nlines\n",))]
    assert [document.path for document in result] == [
        str(tmp_path / name) for name in ("a/x.txt.xz", "b/10.txt.gz", "b/2.txt")
    ]
    assert [document.is_empty for document in result] == [False, True, False]


def test_plain_lines_are_texts_even_if_empty(tmp_path: Path) -> None:
    path = write_file(tmp_path, "x.txt", "one\tnice day\n\nraw \u2028 separator\x85\r\nlast")
    result = documents(path, DocumentChoice(is_labeled=False))
    assert [document.texts for document in result] == [
        ("one\tnice day",), ("",), ("raw \u2028 separator\x85",), ("last",),
    ]  # fmt: skip
    assert [document.line for document in result] == [1, 2, 3, 4]


def test_two_columns_are_a_pair_or_one_joined_text(tmp_path: Path) -> None:
    rows = "premise,hypothesis,gold_label\na b,c,yes\n,d e,no\n"
    path = write_file(tmp_path, "x.csv", rows)
    assert contents(documents(path)) == [(("yes",), ("a b", "c")), (("no",), ("", "d e"))]
    joined = DocumentChoice(texts=("hypothesis", "premise"), joined=True)
    assert contents(documents(path, joined)) == [(("yes",), ("c a b",)), (("no",), ("d e",))]


def test_several_labels_are_read_and_split(tmp_path: Path) -> None:
    table = write_file(tmp_path, "x.tsv", "text\tlabels\na b\tx; y;x ;\nc\ty\n")
    assert [labels for labels, _ in contents(documents(table, DocumentChoice(separator=";")))] == [("x", "y"), ("y",)]
    objects = write_file(tmp_path, "x.jsonl", '{"text": "a", "labels": ["x", 2, "x"]}\n{"text": "b", "labels": "y"}\n')
    assert [labels for labels, _ in contents(documents(objects))] == [("x", "2"), ("y",)]
    marks = write_file(tmp_path, "x.txt", "__label__x  __label__y a __label__ b\n__label__y\n")
    assert contents(documents(marks)) == [(("x", "y"), ("a __label__ b",)), (("y",), ("",))]


@pytest.mark.parametrize(
    ("value", "label"),
    [
        *(("1", "1"), ("1.50", "1.50"), ("-1e5", "-1e5"), ("9" * 5000, "9" * 5000)),
        *(("true", "true"), ("false", "false"), ('" a b "', "a b")),
    ],
)
def test_labels_of_json_are_read_as_text(tmp_path: Path, value: str, label: str) -> None:
    path = write_file(tmp_path, "x.jsonl", f'{{"text": "a \\u00e9 \\ud83d\\ude00", "label": {value}}}\n')
    assert contents(documents(path)) == [((label,), ("a é 😀",))]


def test_line_breaks_and_quotes_inside_quotes_are_read(tmp_path: Path) -> None:
    text = 'label,text\r\n\r\n"a ""b""","one\r\ntwo, ""x""\n"\nplain 5" pipe,"""q"""\n,""\n'
    path = write_file(tmp_path, "x.csv", text)
    result = documents(path, DocumentChoice(is_labeled=False))
    assert contents(result) == [(('a "b"',), ('one\r\ntwo, "x"\n',)), (('plain 5" pipe',), ('"q"',)), ((), ("",))]
    assert [document.line for document in result] == [3, 6, 7]


CELLS = st.lists(st.sampled_from([*'ab ",\n\t\u2028é', "\r\n"]), max_size=8).map("".join)


@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=6),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_csv_is_read_like_pythons_reader(rows: list[tuple[str, str, str]], quoting: int) -> None:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, quoting=quoting, lineterminator="\n").writerows(rows)  # type: ignore[arg-type]
    expected = [(row[1], row[2]) for row in csv.reader(io.StringIO(buffer.getvalue(), newline=""), strict=True)]
    layout = DocumentLayout("csv", (Column(2), Column(3)))
    result = list(read_documents(lines_of(buffer.getvalue()), layout, is_labeled=False))
    assert [document.texts for document in result] == expected == [row[1:] for row in rows]
    assert "".join(document.before + document.source for document in result) == buffer.getvalue()


@given(st.text(max_size=60), st.sampled_from(["tsv", "csv", "json", "fasttext", "first-word", "plain"]))
def test_any_text_is_read_or_refused_with_one_line(text: str, name: str) -> None:
    columns = (Column(1),) if name in ("tsv", "csv") else (Column(0, "text"),)
    layout = DocumentLayout(name, columns, Column(2, "label"))
    message = "stdin:"
    try:
        for document in read_documents(lines_of(text), layout, is_labeled=False):
            assert document.source in text
    except DataError as error:
        message = str(error)
    assert message.startswith("stdin:")
    assert "\n" not in message


TABLE = "label\ttext\n1\ta b c\n0\td e f\n"
CSV = 'label,text\n1,"a b c"\n0,d e f\n'
OBJECT = '{"text": "a", "label": "x"}\n'


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.tsv", TABLE + "1\n", r"x\.tsv:4: 1 column; expected 2 as in line 1"),
        ("x.tsv", TABLE + "\n1\ta\tb\n", r"x\.tsv:5: 3 columns; expected 2 as in line 1"),
        ("x.tsv", TABLE + " \ta\n", r'x\.tsv:4: no label in column 1 "label"'),
        ("x.tsv", TABLE + "1\ta\0b\n", r"x\.tsv:4: a NUL character in column 4; expected text"),
        ("x.tsv", TABLE.encode() + b"1\tcaf\xe9\n", r"x\.tsv:4: not UTF-8 \(byte 0xe9 in column 6\); .*data.encoding"),
        ("x.tsv", TABLE.encode("utf-16"), r"x\.tsv:1: not UTF-8 .*for UTF-16 try --encoding utf-16 "),
        ("x.tsv", "", r"x\.tsv: the text is empty"),
        ("x.csv", CSV + '1,"open\nnot "" shut\n', r"x\.csv:4: the quote that opens here is not closed$"),
        ("x.csv", CSV + '1,"two\nlines","open\nand on\n', r"x\.csv:5: the quote that opens here is not closed"),
        ("x.csv", CSV + '1,"shut" up\n', r"x\.csv:4: expected a comma after the closing quote, found ' up'"),
        ("x.csv", CSV + '1,"two\nlines"\n1\n', r"x\.csv:6: 1 column; expected 2 as in line 1"),
        ("x.csv", '"open,\n' + "a,b\n" * 1500, r"x\.csv:1: the quote that opens here is not closed"),
        (
            "x.jsonl",
            OBJECT + '{"text": "a",\n',
            r"x\.jsonl:2: not JSON \(.*column \d+\); expected one object in each line",
        ),
        (
            "x.jsonl",
            OBJECT + '["a", "b"]\n',
            r'x\.jsonl:2: expected an object such as \{"text": \.\.\., "label": \.\.\.\}',
        ),
        ("x.jsonl", OBJECT + '{"txt": "a", "label": "x"}\n', r'x\.jsonl:2: no "text"; did you mean "txt"\?'),
        ("x.jsonl", OBJECT + '{"text": 3, "label": "x"}\n', r'x\.jsonl:2: "text": expected a string, found 3'),
        ("x.jsonl", OBJECT + '{"text": null, "label": "x"}\n', r'x\.jsonl:2: "text" is null'),
        ("x.jsonl", OBJECT + '{"text": "\\ud83d", "label": "x"}\n', r'x\.jsonl:2: "text" has a lone surrogate'),
        ("x.jsonl", OBJECT + '{"text": "a", "label": "\\udc00"}\n', r'x\.jsonl:2: "label" has a lone surrogate'),
        ("x.jsonl", OBJECT + '{"text": "a", "label": {}}\n', r'x\.jsonl:2: "label": expected a string, a number'),
        ("x.jsonl", OBJECT + '{"text": "a", "label": NaN}\n', r'x\.jsonl:2: "label": expected a string, a number'),
        ("x.jsonl", OBJECT + '{"text": "a", "label": []}\n', r'x\.jsonl:2: no label in "label"'),
        ("x.jsonl", OBJECT + '{"text": "a"}\n', r'x\.jsonl:2: no label in "label"'),
        ("x.jsonl", OBJECT + "[" * 100_000 + "\n", r"x\.jsonl:2: unsupported JSON: nested more than 64 deep"),
        ("x.jsonl", OBJECT + '{"a": ' + "[" * 400 + "]" * 400 + "}\n", r"x\.jsonl:2: .* nested more than 64 deep"),
        ("x.jsonl", "\n{}\n", r"x\.jsonl:1: an object without keys"),
        ("x.json", '[\n"text"\n]\n', r"x\.json:1: not JSON"),
        ("x.ft", "__label__x a\nb c\n", r"x\.ft:2: no label"),
        (
            "x.txt",
            "pos a\nneg b\npos c\nneg d\n e\n",
            r"x\.txt: no labels found; set --format .* --set data\.format=.* tsv, csv, ",
        ),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    path = write_file(tmp_path, name, text)
    with pytest.raises(DataError) as caught:
        documents(path)
    assert re.search(message, caught.value.in_options())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a/x.txt": "x", "b/.hidden": "y"}, r'b: no file of the class "b"'),
        ({"a/x.txt": "x", "b/c/y.txt": "y"}, r"b.c: a folder within a class; expected files"),
        ({"a/x.txt": "x", "b/y.txt": "y\0"}, r"y\.txt: a NUL character; expected text"),
        ({"a/x.txt": "x", "b/y.txt": b"\xff"}, r"y\.txt:1: not UTF-8 \(byte 0xff in column 1\)"),
    ],
)
def test_errors_of_folders_name_the_file(tmp_path: Path, files: dict[str, str | bytes], message: str) -> None:
    for name, text in files.items():
        write_file(tmp_path, name, text)
    with pytest.raises(DataError, match=message):
        documents(tmp_path)


def test_a_missing_folder_and_a_folder_without_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be read \(No such file"):
        list(DocumentSource(tmp_path / "none", format="folders"))
    with pytest.raises(DataError, match="no folders; expected one for each class"):
        list(DocumentSource(tmp_path, format="folders"))


def test_a_record_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes a quote that is never closed, and a file without line ends."""
    for module in ("decoding", "records.quoting"):
        monkeypatch.setattr(f"ensue.data.{module}.MAX_CHARACTERS", 100)
    layout = DocumentLayout("csv", (Column(2),))
    endless = chain(["a,b\n", 'a,"b\n'], repeat("c\n"))
    with pytest.raises(DataError, match=r"stdin:2: the quote that opens here is not closed within 100 characters"):
        list(read_documents(Lines(endless, "stdin"), layout, is_labeled=False))
    blocks = ["a\n\nb", *["c" * 20] * 4]
    assert "".join(line for _, line in Lines(blocks * 2, "stdin")) == "".join(blocks * 2)
    with pytest.raises(DataError, match=r"stdin:3: a line of more than 100 characters; expected a line end"):
        list(Lines(chain(blocks, repeat("c")), "stdin"))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file() -> None:
    layout = DocumentLayout("json", (Column(0, "text"),), Column(0, "label"))
    line = json.dumps({"text": "word " * 200, "label": "x"}) + "\n"
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_documents(Lines((line for _ in range(6_000)), "stdin"), layout))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 6_000
    assert peak < 1 << 20  # of 6 MB


def test_many_quotes_in_a_line_are_read_in_linear_time() -> None:
    marks = " ".join(["__label__x"] * 50_000)
    begin = time.process_time()
    result = list(read_documents(lines_of(f"a {marks} b\na {marks}\n"), DocumentLayout("fasttext"), is_labeled=False))
    assert time.process_time() - begin < 1  # a search from every mark on would take minutes
    assert contents(result) == [((), (f"a {marks} b",)), (("x",), ("a",))]


def test_detection_reads_only_the_first_lines() -> None:
    taken = 0

    def objects(text: str) -> Iterator[str]:
        nonlocal taken
        for _ in range(100_000):
            taken += 1
            yield json.dumps({"text": text, "label": "x"}) + "\n"

    detect_documents(Lines(objects("short"), "x.jsonl"))
    assert taken <= 1000
    taken = 0
    detect_documents(Lines(objects("long" * 250_000), "x.jsonl"))
    assert taken <= 32


def test_a_first_record_of_many_lines_is_detected(tmp_path: Path) -> None:
    path = write_file(tmp_path, "x.csv", "text,label\n" + '"' + "line\n" * 3000 + '",x\n')
    assert contents(documents(path)) == [(("x",), ("line\n" * 3000,))]
