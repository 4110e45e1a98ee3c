"""JSON layouts of annotation tools and libraries, by samples in their documented forms."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ensue.data.detection.kind import detect
from ensue.data.examples import DocumentSource, PairSource
from ensue.data.row_formats import text_blocks
from ensue.data.sentences.source import SentenceSource
from ensue.errors import DataError
from ensue.notices import Notice
from written_files import write_file

pytestmark = pytest.mark.filterwarnings("ignore:.*labels are numbers")
NAMES = (("Anna", "saw", "Rome"), ("B-PER", "O", "B-LOC"))
SPANS = [{"start": 0, "end": 4, "label": "PER"}, {"start": 9, "end": 13, "label": "LOC"}]
TUPLE = ["Anna saw Rome", {"entities": [[0, 4, "PER"], [9, 13, "LOC"]]}]
POINTS = [(0, 3, "Anna", "PER"), (9, 12, "Rome", "LOC")]
FLAT = {"annotator": 1, "annotation_id": 3, "created_at": "2024", "updated_at": "2024", "lead_time": 2.5}
FLAT_SPANS = [{"start": a, "end": b + 1, "text": text, "labels": [label]} for a, b, text, label in POINTS]
TEXTS = [("a good day", "good"), ("a bad day", "bad")] * 4
ROWS = [{"text": text, "label": label} for text, label in TEXTS]


def task(text: str, *results: dict[str, Any], canceled: bool = False) -> dict[str, Any]:
    annotation = {"id": 5, "was_cancelled": canceled, "ground_truth": False, "result": list(results)}
    return {"id": 1, "data": {"text": text}, "annotations": [annotation], "predictions": [], "project": 1}


def choice(*labels: str) -> dict[str, Any]:
    return {"type": "choices", "from_name": "mood", "to_name": "text", "value": {"choices": list(labels)}}


def region(start: int, end: int, text: str, label: str) -> dict[str, Any]:
    value = {"start": start, "end": end, "text": text, "labels": [label]}
    return {"type": "labels", "from_name": "ner", "to_name": "text", "value": value}


SENTENCES: dict[str, Any] = {
    "Label Studio": [task("Anna saw Rome", *(region(a, b + 1, text, label) for a, b, text, label in POINTS))],
    "Label Studio before 1.0": [{"id": 1, "data": {"text": "Anna saw Rome"}, "completions": [
        {"id": 1, "result": [region(a, b + 1, text, label) for a, b, text, label in POINTS]}
    ]}],
    "Label Studio, JSON-MIN": [{"id": 2, "text": "Anna saw Rome", "ner": FLAT_SPANS} | FLAT],
    "doccano": [{"text": "Anna saw Rome", "entities": [
        {"id": 1, "label": label, "start_offset": a, "end_offset": b + 1} for a, b, _, label in POINTS
    ], "relations": []}],
    "DataTurks": [{"content": "Anna saw Rome", "annotation": [
        {"label": [label], "points": [{"start": a, "end": b, "text": text}]} for a, b, text, label in POINTS
    ], "extras": None}],
    "spaCy 2": [TUPLE],
    "NER Annotator": {"classes": ["PER", "LOC"], "annotations": [None, TUPLE]},
    "Rasa": {"rasa_nlu_data": {"regex_features": [], "common_examples": [
        {"text": "Anna saw Rome", "intent": "tell", "entities": [
            {"start": a, "end": b + 1, "value": text, "entity": label} for a, b, text, label in POINTS
        ]}
    ]}},
    "Snips": {"Tell": [{"data": [
        {"text": "Anna", "entity": "PER"}, {"text": " saw "}, {"text": "Rome", "entity": "LOC"},
    ]}]},
    "doccano, numbers": [{"id": 1, "text": "Anna saw Rome", "annotation_approver": None, "meta": {}, "annotations": [
        {"label": label, "start_offset": a, "end_offset": b + 1, "user": 1} for a, b, _, label in POINTS
    ]}],
    "one object": {"text": "Anna saw Rome", "spans": SPANS},
    "UBIAI": [{"documentName": "a.txt", "document": "Anna saw Rome", "relations": [], "tokens": [
        {"text": text, "start": a, "end": b + 1, "token_start": 0, "token_end": 0, "entityLabel": label}
        for a, b, text, label in POINTS
    ]}],
    "texte": [{"texte": "Anna saw Rome", "entities": SPANS}],
    "document": [{"document": "Anna saw Rome", "annotation": SPANS}],
}  # fmt: skip
SENTENCES |= {f"{name}, one object": SENTENCES[name][0] for name in ("DataTurks", "Label Studio", "doccano")}
LABELED: dict[str, Any] = {
    "data": {"version": 2, "data": ROWS},
    "pandas, columns": {
        key: {str(number): row[key] for number, row in enumerate(ROWS)} for key in ("text", "label")
    },
    "pandas, index": {str(number): row for number, row in enumerate(ROWS)},
    "pandas, columns of names": {
        key: {f"row {number}": row[key] for number, row in enumerate(ROWS)} for key in ("text", "label")
    },
    "pandas, index of names": {f"row {number}": row for number, row in enumerate(ROWS)},
    "pandas, split": {"columns": ["text", "label"], "index": [*range(8)], "data": [[*row.values()] for row in ROWS]},
    "pandas, values": [[*row.values()] for row in ROWS],
    "pandas, table": {"schema": {"fields": [{"name": "text"}]}, "data": ROWS},
    "datasets server": {"features": [{"name": "text"}], "rows": [{"row_idx": 1, "row": row} for row in ROWS]},
    "pandas, lists": {key: [row[key] for row in ROWS] for key in ("text", "label")},
    "doccano, numbers": [
        {"id": 1, "text": row["text"], "annotation_approver": "a", "annotations": [{"label": row["label"], "user": 1}]}
        for row in ROWS
    ],
    "spaCy 2": [[row["text"], {"cats": {"so so": 0.1, row["label"]: 1}}] for row in ROWS],
    "Label Studio, JSON-MIN": [
        {"id": n, "text": row["text"], "mood": row["label"]} | FLAT for n, row in enumerate(ROWS)
    ],
    "lists of 0 and 1": {"classes": ["bad", "good"], "data": [
        {"text": row["text"], "labels": [int(row["label"] == name) for name in ("bad", "good")]} for row in ROWS
    ]},
    "DataTurks": [{"content": row["text"], "annotation": {"labels": [row["label"]]}, "extras": None} for row in ROWS],
}  # fmt: skip


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", SENTENCES)
def test_sentences_of_each_layout_are_read(tmp_path: Path, name: str, indent: int | None) -> None:
    path = write_file(tmp_path / "a.json", json.dumps(SENTENCES[name], indent=indent))
    assert detect(path).kind == "sentences"
    source = SentenceSource(path)
    assert [(sentence.words, source.format.labels(sentence)) for sentence in source] == [NAMES]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", LABELED)
def test_labeled_texts_of_each_layout_are_read(tmp_path: Path, name: str, indent: int | None) -> None:
    path = write_file(tmp_path / "a.json", json.dumps(LABELED[name], indent=indent))
    assert detect(path).kind == "texts"
    assert [(*d.texts, *d.labels) for d in DocumentSource(str(path))] == TEXTS


@pytest.mark.parametrize("name", ["lists", "texts"])
def test_texts_grouped_by_label_are_read(tmp_path: Path, name: str) -> None:
    """An object whose lists have another meaning, such as a sentence with its labels, is not read in this way."""
    path = tmp_path / "a.json"
    lists = {"good": ["a good day", "a fine day"], "bad": ["a bad day", "a dull day", "no day"]}
    rows = [(text, label) for label, texts in lists.items() for text in texts]
    path.write_text(json.dumps(lists if name == "lists" else dict(rows), indent=1))
    assert [(*d.texts, *d.labels) for d in DocumentSource(str(path))] == rows
    for other in (
        {"train": ["a good day"] * 4, "test": ["a bad day"] * 4},
        {"tokens": ["a b"] * 4, "tags": ["x y"] * 4},
    ):
        path.write_text(json.dumps(other))
        assert [*text_blocks(path, "utf-8")] == [path.read_text()]


def test_intents_of_a_chatbot_are_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    intents = [
        {"tag": "hi", "patterns": ["good day", "good morning"], "responses": ["hi"]},
        {"tag": "x", "patterns": ["y"]},
    ]
    path.write_text(json.dumps({"intents": intents}))
    assert [(*d.texts, *d.labels) for d in DocumentSource(str(path))] == [
        ("good day", "hi"), ("good morning", "hi"), ("y", "x"),
    ]  # fmt: skip


@pytest.mark.parametrize("lines", ["".join, "\n".join, ",\n".join])
def test_objects_may_span_several_lines(tmp_path: Path, lines: Any) -> None:
    """Numbers stay as they are written."""
    path = tmp_path / "a.json"
    texts = [json.dumps({"text": f"day {n}", "label": n % 2}, indent=2).replace(": 1", ": 1.50") for n in range(4)]
    path.write_text(lines(texts))
    assert [(*d.texts, *d.labels) for d in DocumentSource(str(path))] == [
        ("day 0", "0"), ("day 1", "1.50"), ("day 2", "0"), ("day 3", "1.50"),
    ]  # fmt: skip


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_cells_with_json_are_read(tmp_path: Path, delimiter: str) -> None:
    """A text without spans has an empty cell in Label Studio's CSV. The texts may have commas and line ends."""
    path = tmp_path / ("a.tsv" if delimiter == "\t" else "a.csv")
    cells = [("1", "1", json.dumps(FLAT_SPANS), "Anna saw Rome"), ("2", "1", "", "no,\nnames")]
    rows = [("annotation_id", "annotator", "label", "text"), *cells]
    quoted = (delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) + "\r\n" for row in rows)
    path.write_text("".join(quoted), newline="")
    assert detect(path).kind == "sentences"
    source = SentenceSource(path)
    assert [(sentence.words, source.format.labels(sentence)) for sentence in source] == [
        NAMES, (("no", ",", "names"), ("O",) * 3),
    ]  # fmt: skip


def test_lines_of_a_tool_are_converted_one_by_one(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.jsonl", "\n".join(json.dumps(row) for row in SENTENCES["DataTurks"] * 2) + "\n")
    assert len([*SentenceSource(path)]) == 2


@pytest.mark.filterwarnings("ignore:.*tasks left out")
def test_offsets_of_label_studio_count_utf_16_units_and_canceled_tasks_are_left_out(tmp_path: Path) -> None:
    """An emoji counts as two units, since browsers count so."""
    path = tmp_path / "spans.json"
    smile = task("😀 Lima, Rome", region(3, 7, "Lima", "LOC"), region(8, 12, "Rome", "LOC"))
    path.write_text(json.dumps([smile, task("none"), task("no", canceled=True)], indent=1))
    source = SentenceSource(path)
    assert [(sentence.words, source.format.labels(sentence)) for sentence in source] == [
        (("😀", "Lima", ",", "Rome"), ("O", "B-LOC", "O", "B-LOC")), (("none",), ("O",)),
    ]  # fmt: skip
    path.write_text(json.dumps([task("good", choice("pos")), task("so so", choice("pos", "neg"))]))
    assert [(d.texts, d.labels) for d in DocumentSource(str(path))] == [
        (("good",), ("pos",)), (("so so",), ("pos", "neg")),
    ]  # fmt: skip
    answer = {"type": "textarea", "from_name": "translation", "to_name": "text", "value": {"text": ["gut"]}}
    path.write_text(json.dumps([task("good", answer)]))
    assert [(*pair.sources, *pair.targets) for pair in PairSource(str(path))] == [("good", "gut")]


WRONG: dict[str, tuple[Any, str]] = {
    "no task": ([task("a"), {"data": {}}], "a.json:1: expected a task of Label Studio"),
    "SQuAD": ({"data": [{"title": "a", "paragraphs": []}]}, r"a.json: question answering \(SQuAD\) is unsupported"),
    "SQuAD, rows": (
        [{"context": "a b", "question": "c", "answers": {"text": ["a"], "answer_start": [0]}}],
        r"a.json: question answering \(SQuAD\) is unsupported",
    ),
    "lists": ({"train": [["a", "x"]], "val": [["a", "x"]]}, 'a.json: an object with several lists .*"train", "val"'),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_unsupported_layouts_are_refused(tmp_path: Path, name: str) -> None:
    content, message = WRONG[name]
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        list(SentenceSource(str(tmp_path / "a.json")))


@pytest.mark.parametrize("key", ["text", "tekst", "utterance no. 1"])
@pytest.mark.parametrize("name", ["Label Studio", "Label Studio before 1.0", "Label Studio, JSON-MIN"])
def test_the_text_of_label_studio_has_any_name(name: str, key: str, tmp_path: Path) -> None:
    """Also if a task has another text, or no span."""
    text, bare = (json.loads(json.dumps(SENTENCES[name][0])) for _ in range(2))
    for value, content in ((text, "Anna saw Rome"), (bare, "nobody came at all")):
        data = value.get("data", value)
        del data["text"]
        data |= {"url": "http://a"} | ({"remark": "see it in May and June"} if value is text else {}) | {key: content}
    for empty in (bare.get("annotations") or bare.get("completions") or [bare])[:1]:
        empty.pop("ner", None)
        empty.update({"result": []} if "result" in empty else {})
    (tmp_path / "a.json").write_text(json.dumps([bare, text, bare]))
    source = SentenceSource(tmp_path / "a.json")
    assert [source.format.labels(sentence) for sentence in source] == [("O",) * 4, NAMES[1], ("O",) * 4]


def test_webanno_is_refused_with_the_formats_to_export(tmp_path: Path) -> None:
    text = "#FORMAT=WebAnno TSV 3.3\n#T_SP=de.NamedEntity|value\n\n\n#Text=Anna, saw\n1-1\t0-4\tAnna\tPER\t\n"
    (tmp_path / "a.tsv").write_text(text)
    for source in (SentenceSource, DocumentSource):
        with pytest.raises(DataError, match=r"a\.tsv: WebAnno TSV is unsupported; export CoNLL 2002 or CoNLL-U"):
            [*source(str(tmp_path / "a.tsv"))]


@pytest.mark.parametrize("text", ['{"text": "a",\n "label" "b"}\n', '{"text": "a"} x\n', '[{"text": "a"}, x]\n'])
def test_invalid_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=r"not JSON|expected"):
        list(DocumentSource(str(tmp_path / "a.json")))


ODD = [None, 5, 10**400, 1.5, "x", "", [], {}, True, [1], ["a"], [[]], {"a": 1}, "\ud800", float("nan")]
EVERY = 97
"""The default test tries one case in this number; the slow test tries all."""
CHOICES = [task("good", choice("pos")), task("so so", choice("pos", "neg"))]
INTENTS = {"intents": [{"tag": "hi", "patterns": ["good day", "good morning"]}]}
SAMPLES = {**SENTENCES, **{f"texts, {name}": value for name, value in LABELED.items()},
           "choices": CHOICES, "intents": INTENTS,
           "by label": {"good": ["a b", "c d"], "bad": ["e f", "g h"]},
           "SQuAD": {"data": [{"paragraphs": []}]}}  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    value = copy.copy(value)
    value[path[0]] = changed(value[path[0]], path[1:], new)
    return value


def failures(path: Path, every: int) -> Iterator[str]:
    """Yield the errors that are not one line of DataError, for every layout with an odd value at every place."""
    cases = [(name, place, odd) for name, value in SAMPLES.items() for place in places(value) for odd in ODD]
    for name, place, odd in cases[::every]:
        path.write_text(json.dumps(changed(SAMPLES[name], place, odd)))
        for read in (
            detect,
            lambda path: [*SentenceSource(path)],
            lambda path: [*DocumentSource(path)],
            lambda path: [*PairSource(path)],
        ):
            try:
                read(path)  # type: ignore[no-untyped-call]
            except DataError as error:
                if "\n" in str(error) or len(str(error)) > 800:
                    yield f"{name} {place}: {error}"
            except Exception as error:
                yield f"{name} {place} {odd!r}: {type(error).__name__}: {error}"


LISTS = {name: value * 3 for name, value in SENTENCES.items() if isinstance(value, list)}
LISTS |= {f"texts, {name}": value for name, value in LABELED.items() if isinstance(value, list)}
CONTAINERS = {
    "array": ("[", ",", "]"), "object": (f'{{"meta": [1, "{"[" * 2_000}"], "x": [', ",", "]}"), "objects": ("", "", ""),
    "lines": ("", "", ""),
}  # fmt: skip
"""The text before, between and after the values of a file."""


def in_container(values: list[Any], container: str) -> tuple[str, list[int]]:
    """Return the text of values in a container, and the line on which each value begins."""
    text, between, after = CONTAINERS[container]
    numbers = []
    for number, value in enumerate(values):
        text += "\n" if container != "lines" or number else ""
        numbers.append(text.count("\n") + 1)
        text += json.dumps(value, indent=None if container == "lines" else 1) + between * (number + 1 < len(values))
    return f"{text}\n{after}\n", numbers


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", LISTS)
def test_an_example_has_the_line_of_its_value(name: str, container: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    text, numbers = in_container(LISTS[name], container)
    path.write_text(text)
    source: Any = DocumentSource(str(path)) if name.startswith("texts") else SentenceSource(path)
    assert [example.line for example in source] == numbers
    text, numbers = in_container([*LISTS[name][:2], {"odd": 1}, *LISTS[name][2:]], container)
    path.write_text(text)
    with pytest.raises(DataError, match=f"a.json:{numbers[2]}: "):
        _ = [*(DocumentSource(str(path)) if name.startswith("texts") else SentenceSource(path))]


def test_a_sentence_of_rows_has_the_line_of_its_first_word(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = ["Sentence: 1,Anna,B-PER", ",saw,O", "Sentence: 2,Rome,B-LOC", "Sentence: 3,She,O", ",slept,O"]
    path.write_text("\n".join(["Sentence #,Word,Tag", *rows, ""]))
    assert [sentence.line for sentence in SentenceSource(path)] == [2, 4, 5]
    assert detect(path).reason == "made from the rows of a .csv table"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=pytest.mark.slow)])
def test_a_value_of_a_wrong_type_is_read_or_refused_in_one_line(tmp_path: Path, every: int) -> None:
    assert [*failures(tmp_path / "a.json", every)] == []


def test_the_law_detects_a_layout_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.data.json_layouts.INCOMPLETE", (KeyError,))
    assert any(failures(tmp_path / "a.json", EVERY))


LONG = "a" * 2_000
LARGE: dict[str, str] = {
    "a.jsonl": json.dumps(SENTENCES["DataTurks"][0]) + "\n" + json.dumps({"content": LONG, "annotation": []}),
    "a.json": json.dumps([TUPLE, [LONG, {"entities": []}]]),
    "b.json": json.dumps({"data": [*ROWS, {"text": LONG, "label": "x"}]}),
    "a.csv": f'annotator,annotation_id,text,ner\n1,2,a,"[{{""start"":0}}]"\n1,2,{LONG},',
    "b.csv": f"sentence,word,tag\n1,a,O\n,{LONG},O",
}


@pytest.mark.parametrize("name", LARGE)
def test_a_value_that_is_too_long_is_an_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With or without a line end, and with lines after the long one, so no part of a file is left out silently."""
    for module in ("json_layouts", "json_array", "decoding"):
        monkeypatch.setattr(f"ensue.data.{module}.MAX_CHARACTERS", 1_000)
    monkeypatch.setattr("ensue.data.decoding.BLOCK_BYTES", 64)
    for end in ("", "\n", "\n" + LARGE[name].rpartition("\n")[2] + "\n"):
        (tmp_path / name).write_text(LARGE[name] + end)
        with pytest.raises(DataError, match=r"more than 1,000 characters|field larger than field limit \(1000\)"):
            [*SentenceSource(tmp_path / name)]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_layout_is_detected_for_any_size_of_blocks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first value may be longer than a block of the file."""
    if name == "SQuAD":
        return
    (tmp_path / "a.json").write_text(json.dumps(SAMPLES[name]))
    expected = [*text_blocks(tmp_path / "a.json", "utf-8")]
    monkeypatch.setattr("ensue.data.decoding.BLOCK_BYTES", 16)
    assert "".join(text_blocks(tmp_path / "a.json", "utf-8")) == "".join(expected)


@pytest.mark.filterwarnings("default::ensue.notices.Notice")
def test_results_that_are_not_read_are_counted(tmp_path: Path) -> None:
    """Relations have no value. A text that has only unsupported regions does not become a text without spans."""
    path = tmp_path / "a.json"
    relation = {"type": "relation", "from_id": "a", "to_id": "b", "direction": "right"}
    regions = {"type": "hypertextlabels", "from_name": "ner", "value": {"start": "/p", "end": "/p", "labels": ["X"]}}
    names = [region(a, b + 1, text, label) for a, b, text, label in POINTS]
    path.write_text(json.dumps([task("Anna saw Rome", *names, relation), task("no", regions)]))
    with pytest.warns(Notice, match="results left out: 1 of type hypertextlabels, 1 of type relation; ensue reads"):
        rows = [json.loads(line) for block in text_blocks(path, "utf-8") for line in block.splitlines()]
    assert [len(row.get("spans", ())) for row in rows] == [2, 0]
    assert "spans" not in rows[1]


@pytest.mark.parametrize("name", ["Label Studio", "Label Studio, JSON-MIN", "one object"])
def test_offsets_that_contradict_the_text_of_a_span_are_refused(name: str, tmp_path: Path) -> None:
    value = json.loads(json.dumps(SENTENCES[name]).replace('"start": 9', '"start": 10'))
    if name == "one object":
        value["spans"][1]["text"] = "Rome"
    (tmp_path / "a.json").write_text(json.dumps(value))
    with pytest.raises(DataError, match=r"a.json:1: the span \[10, 13, \"LOC\"\] is 'ome' in the text, not 'Rome'"):
        [*SentenceSource(tmp_path / "a.json")]
