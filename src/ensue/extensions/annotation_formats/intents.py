"""Readers of examples grouped by intent: files of chatbots, and the benchmark of Snips."""

from collections.abc import Iterable
from typing import Any

from ensue.data.json_layouts import DocumentLayout, Row
from ensue.data.records.json_objects import LABEL_KEYS, SPAN_KEYS, TOKEN_KEYS
from ensue.data.records.record import simplified

_OTHER_NAMES = {"train", "training", "valid", "validation", "val", "dev", "test", "text", "texts", "sentence",
                "sentences", *map(simplified, (*TOKEN_KEYS, *LABEL_KEYS, *SPAN_KEYS))}  # fmt: skip
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
        names = {*map(simplified, value)}
        are_lists = {isinstance(entries, list) for entries in value.values()}
        num_blanks = sum(row["text"].count(" ") for row in rows)  # at least one per text, or else they may be ids
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
