"""Detection of headers and of the columns of label and texts, and errors of ambiguous tables."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from ensue.cli import command_line
from ensue.data.examples import DocumentLayout, DocumentSource
from ensue.data.examples.document_columns import find_columns
from ensue.data.examples.formats import detect_documents
from ensue.data.examples.layout import DocumentChoice
from ensue.data.lines import Lines
from ensue.data.records.record import Column, column_error
from ensue.errors import DataError

WORDS = ("so it goes", "a very fine day", "they went home again", "not at all , no", "what is it now ?")


def table(*rows: str, delimiter: str = "\t") -> str:
    return "".join(row.replace("|", delimiter) + "\n" for row in rows)


def layout(text: str, choice: DocumentChoice | None = None, *, name: str = "x.tsv", **options: Any) -> DocumentLayout:
    return detect_documents(Lines([text], name), choice, **options)


def numbered(form: str, count: int = 20) -> list[str]:
    """Return rows with a number, a repeated label and a text."""
    return [form.format(i=i, label=("good", "bad")[i % 2], text=f"{WORDS[i % 5]} {i}") for i in range(count)]


def test_without_labels_the_first_word_is_a_label_only_if_it_was_one_in_the_run() -> None:
    text = "1 a b\n0 c d\n1 e\n"
    assert layout(text, DocumentChoice(is_labeled=False), name="x").format == "plain"
    assert (
        layout(
            text, DocumentChoice(is_labeled=False), name="x", like=DocumentLayout("first-word"), labels=["0", "1", "2"]
        ).format
        == "first-word"
    )
    assert layout("some text\n", name="x", like=DocumentLayout("first-word")).format == "first-word"


@pytest.mark.parametrize(
    ("header", "labels", "texts"),
    [
        ("text|label", 2, [1]),
        ("Class|Sentence", 1, [2]),
        ("id|text|topic|label", 4, [2]),
        ("gold_label|sentence1|sentence2|sentence", 1, [2, 3]),
        ("#1 String|#2 String|Quality", 3, [1, 2]),
        ("premise|hypothesis|label", 3, [1, 2]),
        ("label|title|description", 1, [2, 3]),
        ("review_body|airline sentiment", 2, [1]),
        ("Intent|query", 1, [2]),
    ],
)
def test_columns_are_detected_by_their_names(header: str, labels: int, texts: list[int]) -> None:
    names = header.split("|")
    body = "|".join("x" for _ in names)
    for rows in ([header], [header, body]):
        result = layout(table(*rows))
        assert result.header
        assert result.labels == Column(labels, names[labels - 1])
        assert result.texts == tuple(Column(number, names[number - 1]) for number in texts)
        assert result.joined == ("title" in names)


@pytest.mark.parametrize(
    ("rows", "header", "labels", "texts"),
    [
        (numbered("{label}|{text}"), False, 1, [2]),
        (numbered("{text}|{label}"), False, 2, [1]),
        (numbered("{i}|{text}|{label}"), False, 3, [2]),
        (["v1|v2", *numbered("{label}|{text}")], True, 1, [2]),
        (["id|kommentar|art", *numbered("{i}|{text}|{label}")], True, 3, [2]),
        (["good|Ok", *numbered("{label}|{text}")], False, 1, [2]),
        (["odd|Ok then", *numbered("{label}|{text}")], False, 1, [2]),
        (["question|Where is it ?", "question|Is it ?", "answer|Here it is ."], False, 1, [2]),
        (["a|one two", "b|three four"], False, 1, [2]),
        (["正|这部电影很好看", "反|我不喜欢这部电影", "正|很好看的电影"], False, 1, [2]),
    ],
)
def test_columns_are_detected_by_their_values(rows: list[str], header: bool, labels: int, texts: list[int]) -> None:
    result = layout(table(*rows))
    assert result.header == header
    assert result.labels is not None
    assert (result.labels.number, [column.number for column in result.texts]) == (labels, texts)


def test_columns_can_be_chosen_by_name_or_number() -> None:
    rows = table("a|b|2", *numbered("{label}|{i}|{text}"))
    by_name = DocumentLayout("tsv", (Column(3, "2"),), Column(1, "a"), header=True)
    assert layout(rows, DocumentChoice(("2",), "a")) == by_name
    assert layout(rows, DocumentChoice(("2",), "1", header=True)) == by_name  # a name has priority over a number
    assert layout(rows, DocumentChoice(("3",), "1", header=False)) == DocumentLayout("tsv", (Column(3),), Column(1))
    assert layout(rows, DocumentChoice(labels="b")).labels == Column(2, "b")


@pytest.mark.parametrize(
    ("text", "choice", "message"),
    [
        (
            table(*numbered("{label}|{label}|{text}")),
            DocumentChoice(),
            r"label: it may be column 1, column 2; --set data\.labels=1 or --set data\.labels=2 names it",
        ),
        (
            table(*numbered("{label}|{text}|{text}")),
            DocumentChoice(),
            r"text: it may be column 2, column 3; --set data\.texts=\.\.\. names it",
        ),
        (table("text|class|intent", "a|b|c"), DocumentChoice(), r'it may be column 2 "class", column 3 "intent"'),
        (table("text|label|Label", "a|b|c"), DocumentChoice(), r'it may be column 2 "label", column 3 "Label"'),
        (table("a b c", "d e f"), DocumentChoice(), r"cannot tell which is the label: none of column 1 looks like it"),
        (table("a", "b", "a", "b"), DocumentChoice(), r"cannot tell which is the text: none of column 1 looks like it"),
        (table("text|label", "a|b"), DocumentChoice(labels="lable"), r'x\.tsv:1: no "lable"; did you mean "label"\?'),
        (table("text|label", "a|b"), DocumentChoice(("9",)), r'x\.tsv:1: no "9"; there are "text", "label"'),
        (table("a|b"), DocumentChoice(("2",), "3"), r"x\.tsv:1: no column 3; there are 2, without names"),
        (table("a|b"), DocumentChoice(("0",), "1"), r"x\.tsv:1: no column 0; there are 2, without names"),
        (table("a|b"), DocumentChoice(("1",), "1"), r"x\.tsv: column 1 is named as label and as text"),
        (table("a|b|c|d"), DocumentChoice(("1", "2", "3"), "4"), r"x\.tsv: 3 texts; expected one or a pair, or data"),
        ("\n\n", DocumentChoice(), r"x\.tsv: no rows"),
    ],
)
def test_an_ambiguous_table_is_refused(text: str, choice: DocumentChoice, message: str) -> None:
    with pytest.raises(DataError) as caught:
        layout(text, choice)
    assert re.search(message, caught.value.in_options())


def test_a_chosen_column_needs_a_format_with_columns() -> None:
    with pytest.raises(DataError, match=r"x: first-word has no columns; data\.texts and data\.labels are for tables"):
        layout("1 a\n1 b\n", DocumentChoice(labels="2"), name="x")
    with pytest.raises(DataError, match=r'unknown format "jsn"; did you mean "json"\?'):
        layout("1 a\n1 b\n", format="jsn")


def test_keys_of_json_are_reported_like_columns() -> None:
    objects = '{"id": 7, "text": "a b", "rating": 2, "label": "x"}\n{"text": "c"}\n'
    assert layout(objects, name="x.json") == DocumentLayout("json", (Column(0, "text"),), Column(0, "label"))
    other_keys = "".join(
        f'{{"n": {i}, "art": {i % 2}, "satz": "das ist {i}", "meta": {{"a": "b c d e"}}}}\n' for i in range(9)
    )
    assert layout(other_keys, name="x.json") == DocumentLayout("json", (Column(0, "satz"),), Column(0, "art"))
    with pytest.raises(DataError, match=r'x\.json:1: no "lable"; did you mean "label"\?'):
        layout(objects, DocumentChoice(labels="lable"), name="x.json")


def test_a_later_file_is_read_in_the_layout_of_the_run(tmp_path: Path) -> None:
    train, later, bare, objects = (tmp_path / name for name in ("train.csv", "later.csv", "bare.csv", "x.jsonl"))
    train.write_text("art,satz\nx,a b c\ny,d e f\n", encoding="utf-8")
    later.write_text("n,satz,art\n1,g h,y\n", encoding="utf-8")
    bare.write_text("satz\ng h\n", encoding="utf-8")
    objects.write_text('{"satz": "g h", "art": "y"}\n', encoding="utf-8")
    run = DocumentLayout.from_json(DocumentSource(train, DocumentChoice(("satz",), "art")).layout.to_json())
    assert run == DocumentLayout("csv", (Column(2, "satz"),), Column(1, "art"), header=True)
    for path in (later, objects):
        result = list(DocumentSource(path, like=run))
        assert [(document.labels, document.texts) for document in result] == [(("y",), ("g h",))]
    unlabeled = DocumentSource(bare, DocumentChoice(is_labeled=False), like=run)
    assert unlabeled.layout == DocumentLayout("csv", (Column(1, "satz"),), None, header=True)
    assert [document.texts for document in unlabeled] == [("g h",)]
    with pytest.raises(DataError, match=r'bare\.csv:1: no "art"'):
        DocumentSource(bare, like=run)
    by_number = DocumentLayout("tsv", (Column(1),), Column(2))
    assert layout(table("a b|x", "c d|y"), like=by_number) == by_number
    assert layout('{"text": "a", "label": "x"}\n', name="x.json", like=by_number).texts == (Column(0, "text"),)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (DocumentLayout("plain"), "plain"),
        (DocumentLayout("tsv", (Column(2),), Column(1)), "tsv, label: column 1, text: column 2"),
        (
            DocumentLayout("csv", (Column(1, "a"), Column(3, "b")), Column(2, "y"), header=True, separator=";"),
            'csv with a header, label: column 2 "y" (several, separated by ";"), texts: column 1 "a" + column 3 "b"',
        ),
        (DocumentLayout("json", (Column(0, "a"), Column(0, "b")), joined=True), 'json, text: "a" + "b" (joined)'),
    ],
)
def test_a_layout_is_shown_in_one_line_and_saved_as_json(value: DocumentLayout, shown: str) -> None:
    assert str(value) == shown
    assert DocumentLayout.from_json(value.to_json()) == value


REPEATED = [["Text", "Text", "Label"], *([f"some text of words {n}", str(n), "ab"[n % 2]] for n in range(12))]


def test_a_header_with_a_repeated_name_is_detected() -> None:
    with pytest.raises(DataError, match=r'it may be column 1 "Text", column 2 "Text"; settings={"data.texts"'):
        find_columns(REPEATED, DocumentChoice(), "x")
    with pytest.raises(DataError, match=r'x:1: 2 columns are named "Text" \(1, 2\); expected the number of a column'):
        find_columns(REPEATED, DocumentChoice(texts=("Text",)), "x")
    chosen = find_columns(REPEATED, DocumentChoice(texts=("2",)), "x")
    assert chosen == DocumentLayout("", (Column(2),), Column(3, "Label"), header=True)
    others = [["n", "n", "Text", "Label"], *([str(n), str(n), *row[:1], row[2]] for n, row in enumerate(REPEATED[1:]))]
    expected = DocumentLayout("", (Column(3, "Text"),), Column(4, "Label"), header=True)
    assert find_columns(others, DocumentChoice(), "x") == expected
    unknown = [["Notiz", "Notiz", "Art"], *REPEATED[1:]]
    with pytest.raises(DataError, match='2 columns are named "Notiz"'):
        find_columns(unknown, DocumentChoice(), "x")


@pytest.mark.parametrize(
    "header",
    [
        "Kategorie Datum Beschreibung", "Klasse Nr Text", "Etikett Datum Nachricht", "catégorie date texte",
        "Classe date Contenu", "étiquette id TEXTE", "etiqueta fecha texto", "categoría fecha contenido",
        "categoria data testo", "类别 日期 文本", "标签 日期 内容", "ラベル 日付 テキスト", "カテゴリ 日付 本文",
        "метка дата текст", "Категория дата Текст", "klasa data tekst", "label date text",
    ],
)  # fmt: skip
def test_headers_in_other_languages_are_detected(header: str) -> None:
    """The column between them is constant, as the date of an export is."""
    rows = [header.split(), *(["Login" if n % 3 else "Abo", "1.1.2027", f"so many words {n}"] for n in range(60))]
    layout = find_columns(rows, DocumentChoice(), "x.csv")
    assert layout.header
    assert layout.labels is not None
    assert (layout.labels.number, [column.number for column in layout.texts]) == (1, [3])


def test_two_candidates_are_reported_with_their_options() -> None:
    rows = [["Sparte", "am Tag"], *([str(n % 2), str(n % 3)] for n in range(60))]
    with pytest.raises(DataError) as error:
        find_columns([[*row, "some more words here"] for row in rows], DocumentChoice(header=True), "x.csv")
    assert error.value.in_options().endswith("--set data.labels=Sparte or --set 'data.labels=am Tag' names it")
    assert error.value.with_options().in_options().endswith("--labels Sparte or --labels 'am Tag' names it")


@pytest.mark.parametrize("key", ["", "texts", "labels", "words", "sources", "targets"])
@pytest.mark.parametrize("name", ["Nachricht", "text2"])
def test_a_missing_column_is_reported_with_the_option_of_its_key(key: str, name: str) -> None:
    error = column_error(name, ["text", "label"], key, "x.csv", 1)
    message, in_command = error.in_options(), error.with_options().in_options()
    assert message.startswith(f'x.csv:1: no "{name}"; ')
    assert (f"--set data.{key}=... names the column of {key}" in message) == bool(key)
    assert in_command == message.replace(f"--set data.{key}=...", f"--{key.replace('texts', 'text')} NAME")
    used = {option for parameter in get_command(command_line()).commands["data"].params for option in parameter.opts}
    assert set(re.findall(r"--\w+", in_command)) <= used
