"""Lists and columns of 0 and 1 are labels, if they have names. Where 0 is written, an empty cell is unknown."""

import json
from pathlib import Path

import pytest

from ensue.data.examples import DocumentSource
from ensue.data.examples.layout import BOOLEAN_VALUES, DocumentChoice
from ensue.errors import DataError

LISTS = ([0, 1, 0], [1, 1, 0], [0, 0, 0], [0, 0, 1])
LABELS = (("sport",), ("news", "sport"), (), ("music",))
NAMED = DocumentChoice(labels="news,sport,music")


def write_table(path: Path, lists: object = LISTS) -> str:
    rows = [{"text": f"a text of a day {number}", "labels": each} for number, each in enumerate(lists)]  # type: ignore[arg-type]
    if path.suffix == ".csv":
        cells = [("text", "labels"), *((row["text"], json.dumps(json.dumps(row["labels"]))) for row in rows)]
        path.write_text("".join(f"{text},{labels}\n" for text, labels in cells))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_places_of_indicators_have_names(name: str, tmp_path: Path) -> None:
    source = DocumentSource(write_table(tmp_path / name), NAMED)
    documents = list(source)
    assert tuple(document.labels for document in documents) == LABELS
    later = DocumentSource(write_table(tmp_path / f"b.{name}"), source.layout.with_columns(DocumentChoice()))
    assert tuple(document.labels for document in later) == LABELS
    (tmp_path / f"c.{name}").write_text(
        source.rest + "".join(source.write(each, labels) for each, labels in zip(documents, LABELS[::-1], strict=True))
    )
    source = DocumentSource(str(tmp_path / f"c.{name}"), NAMED)
    assert tuple(document.labels for document in source) == LABELS[::-1]


def test_indicators_without_names_are_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.jsonl")
    message = '"labels" has lists of 0 and 1 without names; --set data.labels=A,B,C names the 3 classes'
    with pytest.raises(DataError) as error:
        DocumentSource(path)
    assert error.value.in_options() == f"{path}: {message}"
    for wrong in ([1, 0], [0, 2, 0], [1]):
        with pytest.raises(DataError, match=r'a\.jsonl:5: "\w+": expected 0 or 1'):
            list(DocumentSource(write_table(tmp_path / "a.jsonl", [*LISTS, wrong]), NAMED))


def test_lists_of_label_numbers_are_not_indicators(tmp_path: Path) -> None:
    for lists in ([[0], [1], [0, 1], [1]], [[0, 1], [1, 0], [0, 1]], [[0, 1, 2], [1, 2, 0]]):
        assert DocumentSource(write_table(tmp_path / "a.jsonl", lists)).layout.flags == ()


@pytest.mark.parametrize("form", BOOLEAN_VALUES)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_an_empty_cell_is_false_only_if_no_cell_says_so(form: tuple[str, str], suffix: str, tmp_path: Path) -> None:
    rows = [[f"a text of a day {number}", *(form[flag] for flag in flags)] for number, flags in enumerate(LISTS)]
    rows = [*rows, ["an empty row of cells", "", "", ""], ["an empty cell", form[1], form[0], ""]]
    keys = ["text", "news", "sport", "music"]
    path = tmp_path / f"a.{suffix}"
    objects = (json.dumps({key: cell or None for key, cell in zip(keys, row, strict=True)}) for row in rows)
    path.write_text("\n".join(objects if suffix == "jsonl" else map(",".join, [keys, *rows])) + "\n")
    labels = [document.labels for document in DocumentSource(str(path), NAMED, incomplete="count")]
    if form[0] == "":
        assert labels == [*LABELS, (), ("news",)]
        return
    assert labels == [*LABELS]
    with pytest.raises(DataError, match=r':[56]: no label in (column 2 )?"news"'):
        list(DocumentSource(str(path), NAMED))
    unlabeled = DocumentSource(str(path), DocumentChoice(labels=NAMED.labels, is_labeled=False))
    path.with_name(f"b.{suffix}").write_text("".join(unlabeled.write(row, ["sport"]) for row in unlabeled))
    relabeled = DocumentSource(str(path.with_name(f"b.{suffix}")), NAMED)
    assert {document.labels for document in relabeled} == {("sport",)}
