"""Detector of SQuAD (questions with spans of a text as answers), which no task of ensue reads."""

from collections.abc import Iterable
from typing import Any

from ensue.data.json_layouts import JsonLayout, Row
from ensue.errors import DataError


class Squad(JsonLayout):
    """The layout of SQuAD, for which `rows` raises DataError."""

    what = "SQuAD"
    is_entire_file = True

    def rows(self, value: Any) -> Iterable[Row] | None:
        data = value.get("data") if isinstance(value, dict) else None
        if isinstance(data, list) and data and isinstance(data[0], dict) and "paragraphs" in data[0]:
            problem = "question answering (SQuAD) is unsupported"
            raise DataError(f"{problem}; a question and a text with a label are pairs for a classifier", self.name)
        return None
