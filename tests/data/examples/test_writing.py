"""Writing of labeled texts changes only the label."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.examples import Document, DocumentLayout, DocumentSource
from ensue.data.examples.formats import read_documents, write_document
from ensue.data.examples.layout import DocumentChoice
from ensue.data.lines import Lines
from ensue.data.records.record import Column

TSV = '\nid\ttext\tlabel\r\n\r\n1\t"a b\t old \r\n\n2\tc\u2028d\t\r\n'
CSV = 'label,text\n"old, ""x""","one\n\ntwo"\n\nold,plain "b"\n'
JSON = (
    '\n{ "text": "a \\u00e9\u2028" ,"label":  "old", "n": 1.50 }\r\n'
    '{"label": ["x"], "text": "b"}\n'
    '{"text": "c", "label": 1}'
)
BARE = '{"text": "a"}\n{"id": {"label": "y"}, "text": "b" }\n'


def rewritten(
    text: str, layout: DocumentLayout, labels: list[tuple[str, ...]], probabilities: tuple[float, ...] = ()
) -> str:
    """Return the text with these labels in place of its labels."""
    result = list(read_documents(Lines([text], "x"), layout, is_labeled=False))
    return "".join(
        write_document(document, layout, new, probabilities) for document, new in zip(result, labels, strict=True)
    )


@pytest.mark.parametrize(
    ("text", "layout", "labels", "expected"),
    [
        (
            TSV,
            DocumentLayout("tsv", (Column(2, "text"),), Column(3, "label"), header=True),
            [("new",), ("a \t b",)],
            TSV.replace(" old ", "new").replace("d\t\r", "d\ta b\r"),
        ),
        (
            CSV,
            DocumentLayout("csv", (Column(2, "text"),), Column(1, "label"), header=True),
            [("new",), ('new "one", two',)],
            CSV.replace('"old, ""x"""', "new").replace("old,plain", '"new ""one"", two",plain'),
        ),
        (
            JSON,
            DocumentLayout("json", (Column(0, "text"),), Column(0, "label")),
            [('new "é"',), ("y",), ("0",)],
            JSON.replace('"old"', '"new \\"é\\""').replace('["x"]', '["y"]').replace('label": 1', 'label": 0'),
        ),
        (
            JSON,
            DocumentLayout("json", (Column(0, "text"),), Column(0, "label")),
            [("y", "z"), (), ("yes",)],
            JSON.replace('"old"', '["y", "z"]').replace('["x"]', "[]").replace('label": 1', 'label": "yes"'),
        ),
        (
            BARE,
            DocumentLayout("json", (Column(0, "text"),)),
            [("new",), ("new",)],
            '{"text": "a", "label": "new"}\n{"id": {"label": "y"}, "text": "b", "label": "new" }\n',
        ),
        (
            "__label__x  __label__y a b\r\n\nc",
            DocumentLayout("fasttext"),
            [("z",), ("new one",)],
            "__label__z a b\r\n\n__label__new_one c",
        ),
        ("a b\t__label__x\n", DocumentLayout("fasttext"), [("y", "z")], "a b __label__y __label__z\n"),
        ("1 a  b \n\n0 c", DocumentLayout("first-word"), [("0",), ("so so",)], "0 a  b \n\nso_so c"),
        ("1\ta b\n0 c\td\n", DocumentLayout("first-word"), [("1",), ("0",)], "1\ta b\n0 c\td\n"),
        ("a\tb\r\n\nc", DocumentLayout("plain"), [("x",), ("y", "z"), ("x\ty",)], "x\ta\tb\r\ny,z\t\nx y\tc"),
    ],
    ids=[
        "tsv", "csv", "json", "json, several", "json, new", "fasttext", "fasttext, behind", "first-word", "tab",
        "plain",
    ],
)  # fmt: skip
def test_only_labels_are_changed(
    text: str, layout: DocumentLayout, labels: list[tuple[str, ...]], expected: str
) -> None:
    assert rewritten(text, layout, labels) == expected


@pytest.mark.parametrize(
    ("text", "layout", "expected"),
    [
        (
            "\ntext\r\na b\r\nc",
            DocumentLayout("tsv", (Column(1, "text"),), header=True),
            "\ntext\tlabel\tprobability\r\na b\tx\t0.9877\r\nc\tx\t0.9877",
        ),
        ("a b\t\nc\t\n", DocumentLayout("tsv", (Column(1),), Column(2)), "a b\tx\t0.9877\nc\tx\t0.9877\n"),
        (
            '"te\nxt"\n"a,b"\n',
            DocumentLayout("csv", (Column(1, "te\nxt"),), header=True),
            '"te\nxt",label,probability\n"a,b",x,0.9877\n',
        ),
        (
            '{"text": "a", "probability": null}\n',
            DocumentLayout("json", (Column(0, "text"),)),
            '{"text": "a", "probability": 0.987654, "label": "x"}\n',
        ),
        ("a\n\n", DocumentLayout("plain"), "x\t0.9877\ta\nx\t0.9877\t\n"),
    ],
    ids=["tsv", "tsv without header", "csv", "json", "plain"],
)
def test_missing_columns_are_added_at_the_end(text: str, layout: DocumentLayout, expected: str) -> None:
    result = list(read_documents(Lines([text], "x"), layout, is_labeled=False))
    assert "".join(write_document(document, layout, ("x",), (0.98765432,)) for document in result) == expected


def test_several_labels_are_joined_with_the_separator_of_the_run() -> None:
    layout = DocumentLayout("csv", (Column(1),), Column(2), separator=";")
    assert rewritten("a,\n", layout, [("x", "y, z")], (0.5, 0.25)) == 'a,"x;y, z",0.5000;0.2500\n'
    layout = DocumentLayout("json", (Column(0, "text"),), separator=";")
    expected = '{"text": "a", "label": "x;y", "probability": [0.5, 0.25]}\n'
    assert rewritten('{"text": "a"}\n', layout, [("x", "y")], (0.5, 0.25)) == expected


def test_a_text_file_of_a_folder_is_written_as_a_line(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_text("text", encoding="utf-8")
    source = DocumentSource(tmp_path)
    (document,) = source
    assert source.write(document, ("b",), (0.5,)) == f"{tmp_path / 'a' / 'x.txt'}\tb\t0.5000\n"


def test_predictions_can_be_read_again(tmp_path: Path) -> None:
    """A run by names reads a file in another order without labels, and its predictions as a file."""
    run = DocumentLayout("csv", (Column(1, "text"),), Column(2, "y"), header=True)
    path = tmp_path / "new.csv"
    path.write_text('n,text\n1,"a, b"\n2,c\n', encoding="utf-8")
    source = DocumentSource(path, DocumentChoice(is_labeled=False), like=run)
    answers = "".join(source.write(document, (document.texts[0][0],)) for document in source)
    assert answers == 'n,text,label\n1,"a, b",a\n2,c,c\n'


WORD = st.text(st.characters(exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=5).filter(
    lambda word: not word.startswith("_")
)
TEXT = st.lists(WORD, min_size=1, max_size=4).map(" ".join)
FORMS = {
    "tsv": lambda label, text: f"{text}\t{label}\t3\n",
    "csv": lambda label, text: ",".join('"' + cell.replace('"', '""') + '"' for cell in (text, label, "3")) + "\n",
    "json": lambda label, text: json.dumps({"n": [3], "text": text, "label": label}) + "\n",
    "fasttext": lambda label, text: f"__label__{label} {text}\n",
    "first-word": lambda label, text: f"{label} {text}\n",
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FORMS)
@given(rows=st.lists(st.tuples(WORD, TEXT, WORD), min_size=1, max_size=5))
def test_round_trips(name: str, rows: list[tuple[str, str, str]]) -> None:
    """New labels are read again, and the old labels give back the text."""
    column = Column(0, "text") if name == "json" else Column(1)
    layout = DocumentLayout(name, (column,), Column(0, "label") if name == "json" else Column(2))
    file = "".join(FORMS[name](label, text) for label, text, _ in rows)
    result = list(read_documents(Lines([file], "x"), layout))
    assert [(document.labels, document.texts) for document in result] == [
        ((label,), (text,)) for label, text, _ in rows
    ]
    new = rewritten(file, layout, [(label,) for _, _, label in rows])
    new_documents = list(read_documents(Lines([new], "x"), layout))
    assert [document.labels for document in new_documents] == [(label,) for _, _, label in rows]
    assert [(document.texts, document.line) for document in new_documents] == [
        (document.texts, document.line) for document in result
    ]
    restored = rewritten(new, layout, [document.labels for document in result])
    assert rewritten(restored, layout, [document.labels for document in new_documents]) == new


def test_a_document_is_a_value() -> None:
    document = Document(("a",), ("x",))
    assert document == Document(texts=("a",), labels=("x",))
    assert len({document, Document(("a",), ("x",))}) == 1
    with pytest.raises(AttributeError):
        document.labels = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "name", "labels"),
    [
        ("a\tb c\n1\xa02 d\n", "first-word", ["a", "1\xa02"]),
        ("__label__1\xa02 d\ne\t__label__x\x0by\n", "fasttext", ["1\xa02", "x\x0by"]),
        ("a\tx  y\nb\t1\xa02\n", "tsv", ["x  y", "1\xa02"]),
    ],
)
def test_labels_with_white_space_round_trip(text: str, name: str, labels: list[str]) -> None:
    layout = DocumentLayout(name, (Column(1),), Column(2)) if name == "tsv" else DocumentLayout(name)
    result = list(read_documents(Lines([text], "x"), layout))
    assert [document.labels for document in result] == [(label,) for label in labels]
    for order in (labels, labels[::-1]):
        documents = list(read_documents(Lines([rewritten(text, layout, [(label,) for label in order])], "x"), layout))
        assert [document.labels for document in documents] == [(label,) for label in order]
        assert [document.texts for document in documents] == [document.texts for document in result]
