"""Rows that a person rejected or ignored in a tool are left out, counted in a notice, and written back.

The rows are sentences and texts, in lines and in arrays.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ensue.data.examples import DocumentSource, PairSource
from ensue.data.examples.layout import DocumentChoice
from ensue.data.sentences.source import SentenceSource
from ensue.notices import Notice

Row = dict[str, Any]
ANSWERS = ["reject", "accept", "ignore", "accept", "reject"]
VIEWS: dict[str, Callable[[int], Row]] = {
    "spans": lambda n: {"text": f"Ann {n} left", "spans": [{"start": 0, "end": 3, "label": "PER"}]},
    "tokens": lambda n: {"tokens": ["Ann", str(n)], "labels": ["B-PER", "O"], "_view_id": "ner_manual"},
    "binary": lambda n: {"text": f"text {n}", "label": "NEWS"},
    "choice": lambda n: {"text": f"text {n}", "options": [{"id": "A", "text": "A"}], "accept": ["A"]},
    "hashes": lambda n: {"text": f"text {n}", "category": "NEWS", "_task_hash": n},
}
FORMS: dict[str, Callable[[list[Row]], str]] = {
    "lines": lambda rows: "".join(json.dumps(row) + "\n" for row in rows),
    "array": json.dumps,
    "indented": lambda rows: json.dumps(rows, indent=2) + "\n",
}


def reads_words(view: str) -> bool:
    return view in ("spans", "tokens")


def written_back(path: Path, view: str) -> str:
    """Return the file, written back with its labels."""
    if reads_words(view):
        sentences = SentenceSource(path)
        return "".join(sentences.format.write(item, sentences.format.labels(item)) for item in sentences)
    documents = DocumentSource(str(path), DocumentChoice(is_labeled=True))
    return "".join([documents.write(item, item.labels) for item in documents]) + documents.rest


def texts(path: Path, view: str) -> list[str]:
    if reads_words(view):
        return [" ".join(item.words) for item in SentenceSource(path)]
    return [item.texts[0] for item in DocumentSource(str(path), DocumentChoice(is_labeled=True))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("view", VIEWS)
def test_rows_that_were_not_accepted_are_left_out(view: str, form: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(FORMS[form]([VIEWS[view](n) | {"answer": answer} for n, answer in enumerate(ANSWERS)]))
    with pytest.warns(Notice, match=r'rows left out: 1 with "answer": "ignore" and 2 with "answer": "reject"'):
        result = texts(path, view)
    assert [text.replace("left", "").split()[-1] for text in result] == ["1", "3"]
    assert written_back(path, view) == path.read_text()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("view", ["spans", "tokens"])
def test_labels_are_written_to_the_row_of_their_sentence(view: str, form: str, tmp_path: Path) -> None:
    """An omitted row before it gets neither its labels nor its text and offsets."""
    path = tmp_path / "rows.json"
    rows = [VIEWS[view](n) | {"answer": answer} for n, answer in enumerate(ANSWERS)]
    rows[0] |= {"text": "another text"} if view == "spans" else {"tokens": ["one", "more", "word"]}
    path.write_text(FORMS[form](rows))
    with pytest.warns(Notice, match="rows left out"):
        sentences = [*(source := SentenceSource(path))]
    labels = [["O", "B-LOC", "O"][: len(sentence.words)] for sentence in sentences]
    output = [source.format.write(*pair) for pair in zip(sentences, labels, strict=True)]
    text = "".join([*output, source.rest])
    content = [json.loads(line) for line in text.splitlines()] if form == "lines" else json.loads(text)
    key = "spans" if view == "spans" else "labels"
    assert [row == old for row, old in zip(content, rows, strict=True)] == [True, False, True, False, True]
    assert content[1][key] == ([{"start": 4, "end": 5, "label": "LOC"}] if view == "spans" else ["O", "B-LOC"])
    assert [source.format.surface(sentence).text.split()[:2] for sentence in sentences] == [["Ann", "1"], ["Ann", "3"]]


def test_the_accepted_choice_is_the_label(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(FORMS["lines"]([VIEWS["choice"](n) | {"answer": "accept"} for n in range(3)]))
    assert [document.labels for document in DocumentSource(str(path), DocumentChoice(is_labeled=True))] == [("A",)] * 3


def test_answers_may_be_labels(tmp_path: Path) -> None:
    """A rejection is a label if the setting names its key. Other rows with such a key are not tasks of a tool."""
    path = tmp_path / "rows.jsonl"
    path.write_text(FORMS["lines"]([VIEWS["binary"](n) | {"answer": answer} for n, answer in enumerate(ANSWERS)]))
    with pytest.warns(Notice, match=r'rows left out: 1 with "answer": "ignore"$'):
        result = list(DocumentSource(str(path), DocumentChoice(labels="answer", is_labeled=True)))
    assert [document.labels[0] for document in result] == [answer for answer in ANSWERS if answer != "ignore"]
    path.write_text(FORMS["lines"]([{"question": f"word {n}?", "answer": answer} for n, answer in enumerate(ANSWERS)]))
    pairs = PairSource(path, sources=["question"], targets=["answer"])
    assert [pair.targets[0] for pair in pairs] == ANSWERS


@pytest.mark.parametrize("form", ["array", "indented"])
def test_canceled_tasks_are_left_out_and_counted(form: str, tmp_path: Path) -> None:
    def task(number: int, *canceled: bool) -> Row:
        value = {"choices": ["A"]}
        result = [{"type": "choices", "from_name": "kind", "value": value}]
        annotations = [{"result": result, ("was_cancelled", "skipped")[number % 2]: flag} for flag in canceled]
        return {"data": {"text": f"text {number}"}, "annotations": annotations}

    path = tmp_path / "tasks.json"
    path.write_text(FORMS[form]([task(0, False), task(1, True), task(2, True, False), task(3, True, True)]))
    with pytest.warns(Notice, match="tasks left out, since all their annotations are canceled: 2"):
        texts = [document.texts[0] for document in DocumentSource(str(path), DocumentChoice(is_labeled=True))]
    assert texts == ["text 0", "text 2"]


def test_discarded_rows_of_argilla_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    states = ["Validated", "Discarded", "Default", "Discarded"]
    rows = [
        {"text": f"text {n}", "annotation": "A", "annotation_agent": "me", "status": s} for n, s in enumerate(states)
    ]
    path.write_text(FORMS["lines"](rows))
    choice = DocumentChoice(labels="annotation", is_labeled=True)
    with pytest.warns(Notice, match=r'rows left out: 2 with "status": "Discarded"$'):
        assert [document.texts[0] for document in DocumentSource(str(path), choice)] == ["text 0", "text 2"]
    path.write_text(FORMS["lines"]([{"text": row["text"], "status": row["status"]} for row in rows]))
    choice = DocumentChoice(labels="status", is_labeled=True)
    assert [document.labels[0] for document in DocumentSource(str(path), choice)] == states


WORDS = ("answer", "status", "label", "text", "spans", "tokens", "data", "annotations", "Discarded", "reject", "start")


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("view", ["spans", "tokens", "binary", "category"])
def test_labels_and_words_may_equal_keys(view: str, word: str, tmp_path: Path) -> None:
    rows: dict[str, Row] = {
        "spans": {"text": f"{word} left", "spans": [{"start": 0, "end": len(word), "label": word}]},
        "tokens": {"tokens": [word, "left"], "labels": [f"B-{word}", "O"]},
        "binary": {"text": f"{word} left", "label": word}, "category": {"text": word, "category": word},
    }  # fmt: skip
    path = tmp_path / "rows.jsonl"
    path.write_text(FORMS["lines"]([rows[view]] * 3))
    assert texts(path, view) == [word if view == "category" else f"{word} left"] * 3
    assert written_back(path, view) == path.read_text()
