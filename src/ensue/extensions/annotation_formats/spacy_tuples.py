"""Reader of training data of spaCy 2 and of files of NER Annotator: [text, {"entities": [[0, 3, "PER"]]}]."""

from collections.abc import Iterable
from typing import Any

from ensue.data.json_layouts import JsonLayout, Row


class SpacyTuple(JsonLayout):
    """A text with spans ("entities"), or with a score for each label ("cats"); labels have scores of at least 0.5."""

    what = 'a text and an object with "entities" or "cats"'

    def rows(self, value: Any) -> Iterable[Row] | None:
        text, annotations = value
        if not isinstance(text, str) or not isinstance(annotations, dict):
            return None
        if "entities" in annotations:
            spans = [dict(zip(("start", "end", "label"), entity, strict=False)) for entity in annotations["entities"]]
            return [{"text": text, "spans": spans}]
        labels = [label for label, score in annotations["cats"].items() if score >= 0.5]
        return [{"text": text, "label": labels[0] if len(labels) == 1 else labels}]
