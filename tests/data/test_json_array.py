"""A file that is one JSON array: incremental parsing at any chunks, reading and writing."""

import io
import json
import tracemalloc
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.detection.kind import detect
from ensue.data.examples import DocumentSource
from ensue.data.examples.layout import DocumentChoice
from ensue.data.json_array import array_chunks, split_part
from ensue.data.lines import Lines
from ensue.data.sentences.source import SentenceSource
from ensue.errors import DataError

KEYS = st.text(max_size=3)
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a"\\{[,]} \né'), max_size=5),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))  # fmt: skip
TEXTS = [{"id": 1, "text": "a fine, long\u2028film", "label": "good"}, {"text": 'a {bad]} "one"', "label": "bad"}]
NAMES = [{"tokens": ["Ann", "left"], "labels": ["B-PER", "O"]}, {"text": "Bo ran", "spans": [[0, 2, "PER"]]}]
FORMS: list[dict[str, Any]] = [
    {}, {"indent": 2}, {"separators": (",", ":")}, {"indent": "\t", "ensure_ascii": False}, {"ensure_ascii": False},
]  # fmt: skip


def saved(path: Path, items: list[dict[str, Any]], form: dict[str, Any]) -> str:
    text = json.dumps(items, **form) + "\n"
    path.write_text(text, encoding="utf-8")
    return text


def cut(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def lines_of(text: str, size: int = 1 << 20) -> Lines:
    lines = Lines(cut(text, size), "x")
    lines.split_array()
    return lines


@given(
    st.lists(st.dictionaries(KEYS, VALUES, max_size=3), min_size=1, max_size=4),
    st.sampled_from(FORMS),
    st.integers(1, 40),
    st.sampled_from(["", "\n", " \r\n \t"]),
)
def test_parts_of_arrays_join_to_text(objects: list[dict[str, Any]], form: dict[str, Any], size: int, end: str) -> None:
    text = json.dumps(objects, **form) + end
    lines = lines_of(text, size)
    result = list(lines)
    assert lines.is_array
    assert "".join(piece for _, piece in result) == text
    values = [split_part(piece)[1] for _, piece in result]
    assert [json.loads(value) for value in values if value] == objects
    for number, piece in result:
        if value := split_part(piece)[1]:
            assert value.split("\n")[0] in text.split("\n")[number - 1]


@pytest.mark.parametrize(
    ("text", "is_array"),
    [
        ('[{"a": 1}]', True), ("[ \n {} ]", True), ("[", False), ("[1, 2]", False), ("[]", False), ("", False),
        ('{"a": [{"b": 1}]}', False), ("[{x}] is text", False), ('\n[{"a": 1}]', False), ("[sic] {", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 100])
def test_only_an_array_of_objects_is_detected(text: str, is_array: bool, size: int) -> None:
    lines = lines_of(text, size)
    assert lines.is_array == is_array
    assert "".join(piece for _, piece in lines) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1}', r"x:1: expected a comma or \], found the end$"),
        ('[{"a": 1}\n{"b": 2}]', r"x:2: expected a comma or \], found '{'$"),
        ('[{"a": 1},\n]', r"x:2: not JSON \(Expecting value\)$"),
        ('[{"a": 1}]\n\nx', r"x:3: expected the end of the file after the array, found 'x'$"),
        ('[{"a": 1},\n{"b\n": 2}]', r"x:2: not JSON \(Invalid control character at\)$"),
        ('[{"a": 1},\n{"b": [1', r"x:2: not JSON \(Expecting ',' delimiter\)$"),
        ('[{"a": 1},\n' + "[" * 65, r"x:2: unsupported JSON: nested more than 64 deep$"),
        ('[{"a": 1},\n' + "[" * 10_000, r"x:2: unsupported JSON: nested more than 64 deep$"),
    ],
)
@pytest.mark.parametrize("size", [3, 1 << 20])
def test_a_broken_array_is_reported_with_the_line(text: str, message: str, size: int) -> None:
    with pytest.raises(DataError, match=message):
        list(lines_of(text, size))


def test_a_value_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.data.json_array.MAX_CHARACTERS", 100)
    for opening, endless in (('[{"a": "', "x"), ('[{"a": x', "\n"), ("[{}", " ")):
        chunks = chain([opening], repeat(endless))
        with pytest.raises(DataError, match=r"^x:1: (a value of )?more than 100 characters"):
            list(array_chunks(chunks, "x"))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_array() -> None:
    item = json.dumps({"text": "word " * 200, "label": "x"})
    tracemalloc.start()
    try:
        count = sum(1 for _ in array_chunks(chain(["[", item], repeat("," + item, 9_999), ["]"]), "x"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 10_001
    assert peak < 1 << 20  # of 10 MB


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["a.json", "a.txt"])
def test_labeled_texts_are_read_and_written_back(form: dict[str, Any], name: str, tmp_path: Path) -> None:
    text = saved(tmp_path / name, TEXTS, form)
    source = DocumentSource(tmp_path / name)
    result = list(source)
    assert source.layout.format == "json"
    assert [(document.texts[0], *document.labels) for document in result] == [(t["text"], t["label"]) for t in TEXTS]
    assert "".join(source.write(document, document.labels) for document in result) + source.rest == text
    changed = "".join(source.write(document, ["new"], [0.5]) for document in result) + source.rest
    new = [item | {"label": "new", "probability": 0.5} for item in TEXTS]
    assert json.loads(changed) == new
    if not form.get("ensure_ascii", True):
        assert changed == json.dumps(new, **form) + "\n"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["a.json", "a.txt"])
def test_labeled_sentences_are_read_and_written_back(form: dict[str, Any], name: str, tmp_path: Path) -> None:
    text = saved(tmp_path / name, NAMES, form)
    source = SentenceSource(tmp_path / name)
    result = list(source)
    assert source.format.name == "json"
    assert [sentence.words for sentence in result] == [("Ann", "left"), ("Bo", "ran")]
    assert [source.format.surface(sentence).text for sentence in result] == ["Ann left", "Bo ran"]
    output = [source.format.write(sentence, source.format.labels(sentence)) for sentence in result]
    assert "".join(output) + source.rest == text
    changed = "".join(source.format.write(sentence, ["O", "B-X"]) for sentence in result) + source.rest
    assert json.loads(changed) == [
        NAMES[0] | {"labels": ["O", "B-X"]}, NAMES[1] | {"spans": [[3, 6, "X"]]}
    ]  # fmt: skip


def test_a_folder_may_have_arrays_and_lines(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(NAMES, indent=1))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(item) + "\n" for item in NAMES))
    assert [sentence.words[0] for sentence in SentenceSource(tmp_path)] == ["Ann", "Bo", "Ann", "Bo"]
    (tmp_path / "a.json").write_text(json.dumps(TEXTS, indent=1))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(item) + "\n" for item in TEXTS))
    assert [document.labels[0] for document in DocumentSource(tmp_path)] == ["good", "bad"] * 2


def test_other_formats_read_an_array_as_lines() -> None:
    text = '[{"a": 1}, \n{"a": 2}]\n'
    lines = Lines(io.StringIO(text), "x")
    source = DocumentSource(lines, DocumentChoice(is_labeled=False), format="plain")
    assert [document.texts[0] for document in source] == text.splitlines()
    assert len(list(SentenceSource(Lines(io.StringIO(text), "x"), format="text"))) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"text": "a", "label": "x"},\n {"text": "b"}]', r"a\.json:2: no label"),
        ('[{"text": "a", "label": "x"},\n 3]', r"a\.json:2: expected an object such as"),
        ('[{"text": "a", "label": "x"},\n {"text": "b" "label": "y"}]', r"a\.json:2: not JSON"),
        ('[{"text": "a", "label": "x"}', r"a\.json:1: expected a comma or \]"),
    ],
)
def test_wrong_objects_are_reported_with_the_line(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match=message):
        list(DocumentSource(tmp_path / "a.json"))


@pytest.mark.parametrize(("items", "kind"), [(NAMES, "sentences"), (TEXTS, "texts")])
def test_the_kind_of_a_long_array_is_detected(
    items: list[dict[str, Any]], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ensue.data.decoding.BLOCK_BYTES", 200)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(items * 100, indent=2))
    detected = detect(path)
    assert (detected.kind, detected.format, detected.is_default) == (kind, "json", True)
