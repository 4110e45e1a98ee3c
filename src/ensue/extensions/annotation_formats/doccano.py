"""Reader of doccano's old JSON export, whose annotations have numbers in place of the names of labels.

Other exports of doccano, such as JSONL, have a text and spans or labels, which need no conversion.
"""

from collections.abc import Iterable
from typing import Any

from ensue.data.json_layouts import JsonLayout, Row
from ensue.notices import warn_once

_KEYS = {"id", "label", "start_offset", "end_offset", "user", "document", "prob", "manual", "created_at",
         "updated_at"}  # fmt: skip
"""The keys of an annotation."""


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
