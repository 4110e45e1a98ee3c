"""Readers of exports of annotation tools, and detectors of files that no task of ensue reads.

DataTurks has spans with inclusive ends, UBIAI has spans as "tokens", doccano's old JSON export has numbers in place of
the names of labels, and files of chatbots and of Snips group examples by intent. SQuAD and WebAnno TSV are not read.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from ensue.data.json_layouts import DocumentLayout, JsonLayout, Row
from ensue.data.records.json_objects import LABEL_KEYS, SPAN_KEYS, TOKEN_KEYS
from ensue.data.records.record import simplify
from ensue.errors import DataError
from ensue.notices import warn_once


class DataTurks(JsonLayout):
    """A text with spans, or with labels of the text."""

    what = 'an example of DataTurks with "content" and "annotation"'

    def rows(self, value: Any) -> Iterable[Row] | None:
        if "content" not in value or "annotation" not in value:
            return None
        text, annotations = value["content"], value["annotation"] or []
        if isinstance(annotations, dict):
            labels = annotations["labels"]
            return [{"text": text, "label": labels[0] if len(labels) == 1 else labels}]
        spans = dict.fromkeys(
            (point["start"], _exclusive_end(text, point), label)
            for annotation in annotations
            for point in annotation["points"]
            for labels in [annotation["label"]]
            for label in (labels if isinstance(labels, list) else [labels])
        )
        return [{"text": text, "spans": [{"start": start, "end": end, "label": label} for start, end, label in spans]}]


class Ubiai(JsonLayout):
    """A text with spans: {"document": ..., "tokens": [{"text": ..., "start": 0, "end": 4, "entityLabel": "PER"}]}."""

    what = 'an example of UBIAI with "document" and "tokens"'

    def rows(self, value: Any) -> Iterable[Row] | None:
        spans = [{**span, "label": span["entityLabel"]} for span in value["tokens"]]
        return [{"text": value["document"], "spans": spans}]


def _exclusive_end(text: str, point: Row) -> Any:
    """Return the end offset after the last character; some exports already have exclusive ends."""
    start, end, content = point["start"], point["end"], point.get("text")
    return end if content is not None and text[start:end] == content else end + 1


_KEYS = {"id", "label", "start_offset", "end_offset", "user", "document", "prob", "manual", "created_at",
         "updated_at"}  # fmt: skip
"""The keys of an annotation of doccano."""


class NumberedLabels(JsonLayout):
    """A text with annotations: {"text": ..., "annotations": [{"label": 3, "start_offset": 0, "end_offset": 4}]}."""

    what = 'an example of doccano with "text" and "annotations"'

    def rows(self, value: Any) -> Iterable[Row] | None:
        text, annotations = value["text"], value["annotations"]
        if "annotation_approver" not in value or not all(annotation.keys() <= _KEYS for annotation in annotations):
            return None
        if any("start_offset" not in annotation for annotation in annotations):
            return [{"text": text, "label": [str(annotation["label"]) for annotation in annotations]}]
        spans = [[x["start_offset"], x["end_offset"], str(x["label"])] for x in annotations]
        return [{"text": text, "spans": spans}]

    def rest(self) -> Iterable[Row]:
        advice = "labels are numbers; the JSONL export of doccano has their names"
        warn_once(f"numbered {self.name}", f"{self.name}: {advice}")
        return ()


class Squad(JsonLayout):
    """Questions of SQuAD: {"data": [{"paragraphs": [...]}]}, or rows with "context", "question" and "answers"."""

    def rows(self, value: Any) -> Iterable[Row] | None:
        item = value["data"][0] if "data" in value else value
        is_squad = "paragraphs" in item or ("context" in item and "answer_start" in item["answers"])
        remedy = "a classifier can label pairs of a question and a text"
        return _refuse(f"question answering (SQuAD) is unsupported; {remedy}", self.name) if is_squad else None


class WebAnno(JsonLayout):
    """WebAnno TSV 3, whose first line names the format."""

    is_table = True

    def rows(self, value: Any) -> Iterable[Row] | None:
        is_webanno = next(iter(value), "").startswith("#FORMAT=WebAnno TSV")
        return _refuse("WebAnno TSV is unsupported; export CoNLL 2002 or CoNLL-U", self.name) if is_webanno else None


def _refuse(problem: str, name: str) -> Iterator[Row]:
    """Return an iterator that raises DataError at its first row. An error in `rows` would only exclude this layout."""
    raise DataError(problem, name)
    yield {}


_OTHER_NAMES = {"train", "training", "valid", "validation", "val", "dev", "test", "text", "texts", "sentence",
                "sentences", *map(simplify, (*TOKEN_KEYS, *LABEL_KEYS, *SPAN_KEYS))}  # fmt: skip
"""Keys of objects whose lists are not the texts of a label."""
_MIN_TEXTS = 4  # a smaller object may be a record


class Intents(DocumentLayout):
    """A list of texts for each tag: {"intents": [{"tag": "greeting", "patterns": ["hi", "hello"]}]}."""

    def rows(self, value: Any) -> Iterable[Row] | None:
        intents = value.get("intents") if isinstance(value, dict) else None
        if not isinstance(intents, list) or not all(isinstance(intent["patterns"], list) for intent in intents):
            return None
        return [{"text": pattern, "label": intent["tag"]} for intent in intents for pattern in intent["patterns"]]


class LabelsOfTexts(DocumentLayout):
    """A list of texts for each label, {"good": ["A fine day."], "bad": ["A dull day."]}, or a label for each text."""

    def rows(self, value: Any) -> Iterable[Row] | None:
        rows = [
            {"text": entry, "label": key} if isinstance(entries, list) else {"text": key, "label": entry}
            for key, entries in value.items()
            for entry in (entries if isinstance(entries, list) else [entries])
        ]
        names = {*map(simplify, value)}
        are_lists = {isinstance(entries, list) for entries in value.values()}
        num_blanks = sum(row["text"].count(" ") for row in rows)  # below one per text, the texts may be ids
        has_classes = len({row["label"] for row in rows}) > 1 and not any(" " in row["label"] for row in rows)
        has_layout = len(are_lists) == 1 and not names & _OTHER_NAMES and has_classes
        return rows if has_layout and len(rows) >= _MIN_TEXTS and num_blanks >= len(rows) else None


class Snips(DocumentLayout):
    """Texts in segments, {"Play": [{"data": [{"text": "U2", "entity": ...}]}]}; a segment with an entity is a span.

    The label is the intent, here "Play", if there are several intents.
    """

    def rows(self, value: Any) -> Iterable[Row] | None:
        examples = [(intent, example["data"]) for intent, examples in value.items() for example in examples]
        rows = [_join(segments) | ({"intent": intent} if len(value) > 1 else {}) for intent, segments in examples]
        return rows or None


def _join(segments: list[Row]) -> Row:
    """Return the text of all segments, and its spans."""
    text, spans = "", []
    for segment in segments:
        start, text = len(text), text + segment["text"]
        if "entity" in segment:
            spans.append({"start": start, "end": len(text), "label": segment["entity"]})
    return {"text": text, "spans": spans}
