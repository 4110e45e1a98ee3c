"""Readers of Label Studio exports: JSON, JSON-MIN, and CSV, which has the values of JSON-MIN in its cells.

Sources: Label Studio, "Label Studio JSON format of annotated tasks" and "Export annotations".
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from ensue.data.json_layouts import JsonLayout, Row
from ensue.notices import warn_once

_NON_BMP = re.compile("[\U00010000-\U0010ffff]")
"""Matches a character outside the Basic Multilingual Plane, which takes two code units of UTF-16."""
READ_TYPES = ("labels", "choices", "textarea")
"""The types of results that are read. Other types are, for example, relations, ratings, and regions of images."""
_TASK_KEYS = {"annotations", "completions", "predictions"}
"""The keys of a task besides its data; versions before 1.0 write "completions"."""
_METADATA = ("annotation_id", "annotator", "created_at", "updated_at", "lead_time")
_MAX_BUFFERED_TASKS = 1000
"""The maximum number of tasks that are buffered while none of them has a span."""


class Task(JsonLayout):
    """A task with the choices, spans and texts of one annotation.

    The annotation is marked as ground truth, or else it is the first annotation that is not canceled. A task is skipped
    and counted if all its annotations are canceled.
    """

    what = "a task of Label Studio with data and annotations"

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._num_canceled = 0
        self._unread: Counter[str] = Counter()

    def rows(self, value: Any) -> Iterable[Row] | None:
        annotations, data = value.get("annotations", value.get("completions", [])), value["data"]
        if not isinstance(annotations, list) or not isinstance(data, dict) or not value.keys() & _TASK_KEYS:
            return None
        valid = [each for each in annotations if not (each.get("was_cancelled") or each.get("skipped"))]
        if annotations and not valid:
            self._num_canceled += 1
            return []
        truth = [annotation for annotation in valid if annotation.get("ground_truth")]
        annotation = (truth or valid or [{}])[0]
        results = annotation.get("result")
        self._unread.update(result["type"] for result in results or () if result["type"] not in READ_TYPES)
        return [{**data, **_read_results(data, results)}]

    def rest(self) -> Iterable[Row]:
        if self._num_canceled:
            skipped = f"tasks left out, since all their annotations are canceled: {self._num_canceled:,}"
            warn_once(f"rejected {self.name}", f"{self.name}: {skipped}")
        if self._unread:
            types = ", ".join(f"{count:,} of type {name}" for name, count in sorted(self._unread.items()))
            skipped = f"results left out: {types}; ensue reads {', '.join(READ_TYPES)}"
            warn_once(f"unread {self.name}", f"{self.name}: {skipped}")
        return ()


def _read_results(data: Row, results: list[Row] | None) -> Row:
    """Return the results of an annotation as columns: labels, spans, and texts written by the annotator."""
    choices: dict[str, list[str]] = {}
    spans, texts = [], {}
    read_text = _find_text(data, [result["value"] for result in results or () if result["type"] == "labels"])
    for result in results or ():
        value = result["value"] if result["type"] in READ_TYPES else {}
        if result["type"] == "labels":
            spans += _read_spans(value, read_text)
        elif result["type"] == "choices" and "start" not in value:
            choices.setdefault(result["from_name"], []).extend(value["choices"])
        elif result["type"] == "textarea":
            texts[result["from_name"]] = "\n".join(value["text"])
    named = {"label" if len(choices) == 1 else key: labels for key, labels in choices.items()}
    row: Row = {key: labels[0] if len(labels) == 1 else labels for key, labels in named.items()} | texts
    is_without_spans = results is not None and not row and all(result["type"] in READ_TYPES for result in results)
    return row | ({"text": read_text, "spans": spans} if spans or is_without_spans else {})


def _find_text(data: Row, spans: list[Row]) -> Any:
    """Return the value at "text", or else the string with the most blanks, preferably one that has the first span."""
    texts = [value for value in data.values() if isinstance(value, str)]
    labeled = [text for text in texts if spans and spans[0].get("text") and spans[0]["text"] in text]
    return data["text"] if "text" in data else max(labeled or texts, key=lambda text: text.count(" "), default=None)


class FlatTask(JsonLayout):
    """A task of JSON-MIN or CSV. Its spans are returned under the key "spans".

    The name of the column of spans is detected in the first task that has a span. Tasks before it are buffered.
    """

    what = "a task of Label Studio as in JSON-MIN"
    is_buffered = True

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._spans_key = ""
        self._buffered: list[Row] = []

    def rows(self, value: Any) -> Iterable[Row] | None:
        if not {"annotation_id", "annotator"} <= value.keys():
            return None
        text = _find_text(value, [span for item in value.values() if _are_spans(item) for span in item])
        row = {key: _convert_item(item, text) for key, item in value.items() if key not in _METADATA}
        self._buffered.append(row)
        self._spans_key = self._spans_key or next((key for key, item in row.items() if _are_spans(item)), "")
        return self.rest() if self._spans_key or len(self._buffered) > _MAX_BUFFERED_TASKS else []

    def rest(self) -> Iterable[Row]:
        rows, self._buffered = self._buffered, []
        if not self._spans_key:
            return rows
        lists = [row.pop(self._spans_key, None) or [] for row in rows]
        return [{**row, "text": _find_text(row, spans), "spans": spans} for row, spans in zip(rows, lists, strict=True)]


def _are_spans(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and isinstance(item[0], dict) and "start" in item[0]


def _convert_item(item: Any, text: Any) -> Any:
    if _are_spans(item):
        return [labeled for span in item for labeled in _read_spans(span, text)]
    if isinstance(item, dict) and item.keys() == {"choices"}:
        return item["choices"]
    return item


def _read_spans(value: Row, text: Any) -> list[Row]:
    """Return a span for each label, with text and offsets in characters. Label Studio may count in UTF-16 units."""
    start, end, content = value["start"], value["end"], value.get("text")
    if isinstance(text, str) and content is not None and text[start:end] != content:
        non_bmp = _non_bmp_offsets(text)
        char_start, char_end = (offset - bisect_left(non_bmp, offset) for offset in (start, end))
        if text[char_start:char_end] == content:
            start, end = char_start, char_end
    return [{"start": start, "end": end, "label": label, "text": content} for label in value["labels"]]


@lru_cache(maxsize=1)
def _non_bmp_offsets(text: str) -> list[int]:
    """Return the offsets of the characters outside the BMP, in code units of UTF-16."""
    return [match.start() + number for number, match in enumerate(_NON_BMP.finditer(text))]
