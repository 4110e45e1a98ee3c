"""Columns of words and labels: reading, and writing back byte for byte."""

from itertools import repeat

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ensue.data.lines import Lines
from ensue.data.sentences.columns import Columns
from ensue.data.sentences.sentence import Sentence
from ensue.errors import DataError

FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\r\n"), min_size=1, max_size=6)
ROWS = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.lists(FIELD, min_size=width, max_size=width), min_size=1, max_size=4), min_size=1, max_size=5
    )
)
BLANK_LINES = st.sampled_from(["", "\n", "  \n", "\n\n \t\n", "-DOCSTART- -X- O\n\n", "-DOCSTART-\n"])


def read(text: str, words: str | None = None) -> list[Sentence]:
    return list(Columns(words=words).read(Lines([text], "x.txt")))


def write_labels(sentences: list[Sentence], labels: list[list[str]], column: str | None = None) -> str:
    return "".join(Columns().write(*pair, column) for pair in zip(sentences, labels, strict=True))


@st.composite
def files(draw: st.DrawFn) -> tuple[str, list[list[list[str]]]]:
    """Draw a file's text, and its sentences as rows of fields."""
    sentences = draw(ROWS)
    assume(any(not row[0].startswith("#") for rows in sentences for row in rows))  # otherwise all rows are comments
    end = draw(st.sampled_from(["\n", "\r\n"]))
    has_tabs = len(sentences[0][0]) > 1 and draw(st.booleans())
    separators = st.just("\t") if has_tabs else st.text(" ", min_size=1, max_size=3)
    text = draw(BLANK_LINES)
    for rows in sentences:
        for row in rows:
            text += row[0] + "".join(draw(separators) + field for field in row[1:]) + end
        text += end + draw(BLANK_LINES)
    return text, sentences


@given(files())
def test_every_column_round_trips(file: tuple[str, list[list[list[str]]]]) -> None:
    text, expected = file
    sentences = read(text)
    assert [list(sentence.words) for sentence in sentences] == [[row[0] for row in rows] for rows in expected]
    width = len(expected[0][0])
    for sentence, rows in zip(sentences, expected, strict=True):
        assert list(sentence.columns) == [str(number) for number in range(1, width + 1)]
        assert list(zip(*sentence.columns.values(), strict=True)) == [tuple(row) for row in rows]
        assert sentence.column("last") == sentence.column(str(width))
        assert text.split("\n")[sentence.line - 1].startswith(rows[0][0])
    assert "".join(sentence.source.text for sentence in sentences) == text
    for column in range(width):
        same = [[row[column] for row in rows] for rows in expected]
        assert write_labels(sentences, same, str(column + 1)) == text


@given(files(), st.data())
def test_only_one_column_is_changed(file: tuple[str, list[list[list[str]]]], data: st.DataObject) -> None:
    text, expected = file
    width = len(expected[0][0])
    column = data.draw(st.integers(0, width))  # the last one of these is a new column
    labels = [[data.draw(FIELD) for _ in rows] for rows in expected]
    output = write_labels(read(text), labels, str(column + 1))
    new = [
        [[*row[:column], label, *row[column + 1 :]] for row, label in zip(rows, marks, strict=True)]
        for rows, marks in zip(expected, labels, strict=True)
    ]
    columns = [list(zip(*sentence.columns.values(), strict=True)) for sentence in read(output)]
    assert columns == [[tuple(row) for row in rows] for rows in new]
    assert output.count("\n") == text.count("\n")
    assert output.count("\r\n") == text.count("\r\n")


def test_runs_of_blanks_round_trip() -> None:
    text = "Ann  NNP   O \r\nleft VBD \tO\r\n\r\n\r\n#  # O"
    sentences = read(text)
    assert [sentence.words for sentence in sentences] == [("Ann", "left"), ("#",)]
    assert write_labels(sentences, [["B-PER", "O"], ["X"]]) == "Ann  NNP   B-PER \r\nleft VBD \tO\r\n\r\n\r\n#  # X"
    labels = [["B", "O"], ["X"]]
    assert write_labels(sentences, labels, "4") == "Ann  NNP   O   B \r\nleft VBD \tO \tO\r\n\r\n\r\n#  # O X"


def test_words_alone_are_written_with_a_second_column() -> None:
    assert write_labels(read("Ann\nleft\n\n.\n"), [["B PER", "O"], ["O"]]) == "Ann\tB PER\nleft\tO\n\n.\tO\n"
    with pytest.raises(DataError, match=r"^x\.txt:1: no labels: the only column of the file has the words$"):
        Columns().labels(read("Ann\nleft\n")[0])


def test_blanks_and_empty_fields_between_tabs_round_trip() -> None:
    text = "New York\t\tB-LOC\nis\tVBZ\tO\n"
    (sentence,) = read(text)
    assert sentence.words == ("New York", "is")
    assert sentence.column("2") == ("", "VBZ")
    assert write_labels([sentence], [["V P", "X"]], "2") == "New York\tV P\tB-LOC\nis\tX\tO\n"


def test_a_docstart_line_begins_a_document() -> None:
    start = "-DOCSTART- -X- O\n"
    text = f"a O\n\n{start}\n{start}\nb O\n\nc O\n{start}d O\n\n{start}"
    sentences = read(text)
    assert [(sentence.words, sentence.document) for sentence in sentences] == [
        (("a",), 0), (("b",), 1), (("c",), 1), (("d",), 2),
    ]  # fmt: skip
    assert [sentence.line for sentence in sentences] == [1, 7, 9, 11]
    assert write_labels(sentences, [["O"]] * 4) == text
    assert read(start + "\na O\n")[0].document == 0
    assert read("-DOCSTART-X O\n")[0].words == ("-DOCSTART-X",)


def test_comments_with_a_key_have_any_number_of_columns() -> None:
    text = "# sent_id = 1\na X Y O\n# # X Y\n\n# X Y O\nb X Y O\n\na X Y O\nb X Y O\n\n"
    sentences = read(text)
    assert [sentence.words for sentence in sentences] == [("a", "#"), ("#", "b"), ("a", "b")]
    assert write_labels(sentences, [["O", "Y"], ["O"] * 2, ["O"] * 2]) == text


def test_words_of_another_column_are_read() -> None:
    (sentence,) = read("1 Ann O\n2 left O\n", words="2")
    assert sentence.words == ("Ann", "left")
    with pytest.raises(DataError, match=r'^x\.txt:1: no "4"; there are "1", "2", "3"; .*"data.words"'):
        read("1 Ann O\n", words="4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\nb\n", "x.txt:2: expected 2 columns separated by blanks as in line 1, found 1"),
        ("\na O\n\nb x O\n", "x.txt:4: expected 2 columns separated by blanks as in line 2, found 3"),
        ("a\tO\nb O\n", "x.txt:2: expected 2 columns separated by tabs as in line 1, found 1"),
        ("a\tO\n\nb\tO\t\n", "x.txt:3: expected 2 columns separated by tabs as in line 1, found 3"),
        ("a\u3000O b\nc\n", "x.txt:2: expected 2 columns separated by blanks as in line 1, found 1"),
    ],
)
def test_rows_of_different_widths_are_refused(text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("column", ["3", "0", "-1", "x", "٢", ""])
def test_a_missing_column_is_refused(column: str) -> None:
    (sentence,) = read("\na O\n")
    with pytest.raises(DataError, match=r'^x\.txt:2: no ".*"; (there are "1", "2"|did you mean "1"\?)$'):
        sentence.column(column)


@pytest.mark.parametrize(
    ("text", "label", "fault"),
    [
        ("a O\n", "B PER", "the label 'B PER' cannot be written in this format: it has the character ' '"),
        ("a\tO\n", "B\tX", r"the label 'B\tX' cannot be written in this format: it has the character '\t'"),
        ("a\tO\n", "", "the label '' cannot be written in this format: it is empty"),
    ],
)
def test_labels_that_break_the_line_are_refused(text: str, label: str, fault: str) -> None:
    with pytest.raises(DataError) as caught:
        write_labels(read(text), [[label]])
    assert str(caught.value) == f"x.txt:1: {fault}"


def test_a_file_without_rows_has_no_sentences() -> None:
    assert read("") == read("\n\n \n") == read("-DOCSTART- O\n\n") == []


def test_unusual_words_are_read() -> None:
    long, family = "x" * 1_000_000, "👨\u200d👩\u200d👧"
    text = f"\x00 O\n{long} O\n\u2028\x85\u3000\xa0 O\nשלום O\n{family} O\n"
    (sentence,) = read(text)
    assert sentence.words == ("\x00", long, "\u2028\x85\u3000\xa0", "שלום", family)
    assert write_labels([sentence], [["O"] * 5]) == text


def test_a_stream_is_read_line_by_line() -> None:
    sentences = Columns().read(Lines(repeat("a O\nb O\n\n"), "stdin"))
    assert [next(sentences).line for _ in range(3)] == [1, 4, 7]
