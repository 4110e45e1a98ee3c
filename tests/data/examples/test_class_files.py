"""Folders with a file for each class: detection, reading, writing."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.detection.kind import detect
from ensue.data.detection.locations import folder_format
from ensue.data.examples import DocumentLayout, DocumentSource
from ensue.data.examples.layout import DocumentChoice
from ensue.data.lines import Lines
from ensue.errors import DataError

NAMES = {"Arabic.txt": "Khoury\nNahas\n", "French.txt": "Abel\r\nÉtienne\r\n", "Scots Gaelic.txt": "Smith\n\nRoss"}


def folder(path: Path, files: dict[str, str]) -> Path:
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        (path / name).write_bytes(text.encode())
    return path


def test_lines_are_read_with_the_name_of_their_file_as_label(tmp_path: Path) -> None:
    files = NAMES | {"Scots Gaelic.txt": "Smith\nRoss"}
    source = DocumentSource(folder(tmp_path, files))
    assert source.layout == DocumentLayout("class-files")
    assert [(*document.labels, *document.texts) for document in source] == [
        ("Arabic", "Khoury"), ("Arabic", "Nahas"), ("French", "Abel"), ("French", "Étienne"),
        ("Scots Gaelic", "Smith"), ("Scots Gaelic", "Ross"),
    ]  # fmt: skip


@pytest.mark.parametrize("location", [".", "*.txt"])
def test_the_format_can_be_set(location: str, tmp_path: Path) -> None:
    source = DocumentSource(folder(tmp_path, NAMES) / location, format="class-files")
    result = list(source)
    assert [document.labels[0] for document in result] == ["Arabic"] * 2 + ["French"] * 2 + ["Scots Gaelic"] * 2
    assert "".join(document.before + document.source for document in result) == "".join(NAMES.values())
    content = "".join(source.write(document, ["a\tb"], [0.25]) for document in result) + source.rest
    assert content == (
        "a b\t0.2500\tKhoury\na b\t0.2500\tNahas\na b\t0.2500\tAbel\r\na b\t0.2500\tÉtienne\r\n"
        "a b\t0.2500\tSmith\n\na b\t0.2500\tRoss"
    )


@given(st.text(st.sampled_from("ab \r\n.é"), max_size=30))
def test_any_lines_are_read_and_written_back(text: str) -> None:
    source = DocumentSource(Lines([text], "names/Arabic.txt.xz"), format="class-files") if text.strip() else None
    result = list(source or [])
    rest = source.rest if source else text
    assert "".join(document.before + document.source for document in result) + rest == text
    assert [document.texts[0] for document in result] == [line for line in _lines(text) if line.strip(" \r")]
    assert {document.labels for document in result} <= {("Arabic",)}
    if source:
        content = "".join(source.write(document, ["x"]) for document in result) + rest
        assert content == "".join(f"{document.before}x\t{document.source}" for document in result) + rest


def _lines(text: str) -> list[str]:
    """Return lines without their ends. The last line may lack its end, where a lone carriage return is a character."""
    *lines, last = text.split("\n")
    return [*(line.removesuffix("\r") for line in lines), last]


QUESTIONS = {"Person.txt": "Who is it ?\nWho was it ?\n", "Place.txt": "Where is it ?\nWhere was it ?\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (QUESTIONS, "class-files"), ({"a.txt": "x\ny\n", "b.txt": "z\n"}, "class-files"),
        (QUESTIONS | {"README": "a\n\nb\tc\n", "License.txt": "d\n"}, "class-files"), ({"a.txt": "x\ny\n"}, ""),
        ({"a.txt": "x\ny\n", "b.md": "z\n"}, ""), ({"train.txt": "x\ny\n", "test.txt": "z\n"}, ""),
        ({"wiki.train.txt": "x\ny\n", "wiki.valid.txt": "z\n"}, ""), ({"part1.txt": "x\ny\n", "part2.txt": "z\n"}, ""),
        ({"a.txt": "x\ny\n", "b.txt": "One.\n\nTwo.\n"}, ""), ({"a.txt": "x\tu\ny\tv\n", "b.txt": "z\tw\n"}, ""),
        ({"a.txt": "1 x y\n0 z y\n1 u\n", "b.txt": "0 u v\n1 w\n1 a\n"}, ""),
        ({"a.txt": "__label__x a\n", "b.txt": "__label__y b\n"}, ""),
        ({"a.txt": '{"text": "a"}\n', "b.txt": "b\n"}, ""), ({"a.txt": "", "b.txt": "b\n"}, ""),
    ],
)  # fmt: skip
def test_only_folders_with_files_for_classes_are_detected(files: dict[str, str], expected: str, tmp_path: Path) -> None:
    assert folder_format(folder(tmp_path, files)) == expected
    assert folder_format(tmp_path / next(iter(files))) == ""


def test_files_of_lines_are_read_as_texts_only_by_a_run_of_that_format(tmp_path: Path) -> None:
    choice = DocumentChoice(is_labeled=False)
    folder(tmp_path, QUESTIONS)
    assert DocumentSource(tmp_path, choice).layout.format == "plain"
    assert DocumentSource(tmp_path, choice, like=DocumentLayout("plain")).layout.format == "plain"
    assert DocumentSource(tmp_path, choice, like=DocumentLayout("class-files")).layout.format == "class-files"
    assert DocumentSource(tmp_path / "Person.txt", choice, like=DocumentLayout("class-files")).layout.format == "plain"


@pytest.mark.parametrize("format", ["", "class-files"])
@pytest.mark.parametrize("beside", [{}, {"README": "about\n\nthem\n", "LICENSE.txt": "a\n"}], ids=["alone", "readme"])
def test_files_of_classes_are_detected(format: str, beside: dict[str, str], tmp_path: Path) -> None:
    detected = detect(folder(tmp_path / "q", QUESTIONS | beside), format=format)
    assert (detected.kind, detected.format, detected.is_default) == ("texts", "class-files", True)


def test_wrong_files_are_reported_with_the_line(tmp_path: Path) -> None:
    folder(tmp_path, {"a.txt": "x\ny\n", "b.txt": "x\ny\0z\n"})
    with pytest.raises(DataError, match=r"b\.txt:2: a NUL character in column 2"):
        list(DocumentSource(tmp_path))
    (tmp_path / "b.txt").write_bytes(b"x\n\xff\n")
    with pytest.raises(DataError, match=r"b\.txt:2: not UTF-8"):
        list(DocumentSource(tmp_path))
    assert detect(tmp_path).format == "class-files"
    with pytest.raises(DataError, match=r"class-files has no columns"):
        DocumentSource(tmp_path, DocumentChoice(labels="x"), format="class-files", encoding="latin-1")


def test_a_folder_of_long_lines_is_not_detected(tmp_path: Path) -> None:
    folder(tmp_path, {"a.txt": "running text " * 6_000, "b.txt": "more " * 50})
    assert detect(tmp_path).format == "text"
