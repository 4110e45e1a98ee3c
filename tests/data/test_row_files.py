"""Parquet files and data sets of Hugging Face as labeled sentences, labeled texts and pairs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ensue.data.detection.kind import detect
from ensue.data.examples import DocumentSource, PairSource
from ensue.data.examples.layout import DocumentChoice
from ensue.data.lines import Lines
from ensue.data.row_files import json_lines
from ensue.data.sentences.source import SentenceSource
from ensue.data.sources import TextSource
from ensue.errors import DataError

SENTENCES = {"id": [7, 8], "tokens": [["Ann", "left"], ["Bo"]], "ner_tags": [[1, 0], [1]]}
NER = ["O", "B-PER"]
TEXTS = {"text": ["good", "bad, too", "fine"] * 4, "label": [1, 0, -1] * 4, "score": [0.5, float("nan"), 2.0] * 4}
PAIRS = {"translation": [{"de": "Hallo Welt", "en": "hello world"}, {"de": "ja", "en": "yes"}]}

Written = Callable[[dict[str, list[Any]], dict[str, list[str]]], str]


def features(datasets: Any, table: dict[str, list[Any]], classes: dict[str, list[str]]) -> Any:
    result = datasets.Dataset.from_dict(table).features
    for column, names in classes.items():
        named = datasets.ClassLabel(names=names)
        result[column] = datasets.List(named) if isinstance(table[column][0], list) else named
    return result


@pytest.fixture(params=["parquet", pytest.param("datasets", marks=pytest.mark.slow)])
def write_table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """A function that writes a table with columns of class numbers, and returns its location."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415

    def as_parquet(table: dict[str, list[Any]], classes: dict[str, list[str]]) -> str:
        kinds = {column: {"names": names, "_type": "ClassLabel"} for column, names in classes.items()}
        lists = {column: {"feature": kind, "_type": "List"} for column, kind in kinds.items()}
        kinds |= {column: kind for column, kind in lists.items() if isinstance(table[column][0], list)}
        metadata = {"huggingface": json.dumps({"info": {"features": kinds}})}
        parquet.write_table(pyarrow.table(table).replace_schema_metadata(metadata), tmp_path / "some.parquet")
        return str(tmp_path / "some.parquet")

    def as_data_set(table: dict[str, list[Any]], classes: dict[str, list[str]]) -> str:
        datasets = pytest.importorskip("datasets")
        datasets.Dataset.from_dict(table, features=features(datasets, table, classes)).save_to_disk(tmp_path / "some")
        return f"hf:{tmp_path}/some"

    return as_parquet if request.param == "parquet" else as_data_set


def test_sentences(write_table: Written) -> None:
    location = write_table(SENTENCES, {"ner_tags": NER})
    source = SentenceSource(location)
    result = list(source)
    assert [sentence.words for sentence in result] == [("Ann", "left"), ("Bo",)]
    assert [source.format.labels(sentence) for sentence in result] == [("B-PER", "O"), ("B-PER",)]
    assert (result[1].source.name, result[1].line) == (location, 2)
    output = [source.format.write(sentence, source.format.labels(sentence)) for sentence in result]
    assert "".join(output) == "".join(json_lines(Path(location)))
    assert detect(location)[:2] == ("sentences", "json")


def test_texts(write_table: Written) -> None:
    location = write_table(TEXTS, {"label": ["negative", "positive"]})
    source = DocumentSource(location, DocumentChoice(is_labeled=False))
    result = list(source)
    assert [(document.texts, document.labels) for document in result[:3]] == [
        (("good",), ("positive",)), (("bad, too",), ("negative",)), (("fine",), ()),
    ]  # fmt: skip
    lines = "".join(json_lines(Path(location))).splitlines(keepends=True)
    assert [source.write(document, document.labels) for document in result[:2]] == lines[:2]
    assert json.loads(source.write(result[1], ("positive",), (0.75,))) == {
        "text": "bad, too", "label": "positive", "score": None, "probability": 0.75,
    }  # fmt: skip
    assert source.files.fingerprint() == DocumentSource(location, DocumentChoice(is_labeled=False)).files.fingerprint()
    with pytest.raises(DataError, match=r':3: no label in "label"; '):
        list(DocumentSource(location))
    assert detect(location)[:2] == ("texts", "json")


def test_pairs(write_table: Written) -> None:
    location = write_table(PAIRS, {})
    assert [(pair.sources, pair.targets) for pair in PairSource(location)] == [
        (("Hallo Welt",), ("hello world",)), (("ja",), ("yes",)),
    ]  # fmt: skip
    assert detect(location)[:2] == ("pairs", "json")


def test_a_row_file_is_refused_as_running_text(write_table: Written) -> None:
    with pytest.raises(DataError, match="ensue prepare"):
        TextSource(write_table(TEXTS, {}))


def test_a_column_that_contradicts_its_features_is_read_unchanged(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415

    feature = {"feature": {"_type": "ClassLabel", "names": ["a", "b"]}}
    metadata = {"huggingface": json.dumps({"info": {"features": {"x": feature}}})}
    table = pyarrow.table({"x": [1, None]}).replace_schema_metadata(metadata)
    parquet.write_table(table, tmp_path / "a.parquet")
    assert list(json_lines(tmp_path / "a.parquet")) == ['{"x": 1}\n{"x": null}\n']


def test_values_without_a_form_in_json_become_text_or_null(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415

    path = tmp_path / "odd.pq"
    times = pyarrow.array([0, None], pyarrow.timestamp("s"))
    parquet.write_table(pyarrow.table({"time": times, "bytes": [b"\xff", None], "x": [float("inf"), 1.5]}), path)
    assert [json.loads(line) for _, line in Lines.of(path)] == [
        {"time": "1970-01-01 00:00:00", "bytes": None, "x": None}, {"time": None, "bytes": None, "x": 1.5},
    ]  # fmt: skip
    path.write_text("no parquet")
    with pytest.raises(DataError, match=r"^\S+odd.pq: not Parquet: "):
        DocumentSource(path)
