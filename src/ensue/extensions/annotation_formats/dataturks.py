"""Readers of exports of DataTurks, whose spans have inclusive ends, and of UBIAI, whose "tokens" are spans."""

from collections.abc import Iterable
from typing import Any

from ensue.data.json_layouts import JsonLayout, Row


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
