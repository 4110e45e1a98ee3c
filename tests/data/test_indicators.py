"""Lists of 0 and 1 are the labels of a text, if their places have names."""

import json
from pathlib import Path

import pytest

from ensue.data.examples import DocumentSource
from ensue.data.examples.layout import DocumentChoice
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
