"""Detectors of files that no task of ensue reads: SQuAD, and WebAnno TSV, an export of INCEpTION."""

from collections.abc import Iterable, Iterator
from typing import Any

from ensue.data.json_layouts import JsonLayout, Row
from ensue.errors import DataError


class Squad(JsonLayout):
    """Questions of SQuAD: {"data": [{"paragraphs": [...]}]}, or rows with "context", "question" and "answers"."""

    def rows(self, value: Any) -> Iterable[Row] | None:
        item = value["data"][0] if "data" in value else value
        is_squad = "paragraphs" in item or ("context" in item and "answer_start" in item["answers"])
        remedy = "a question and a text with a label are pairs for a classifier"
        return _refuse(f"question answering (SQuAD) is unsupported; {remedy}", self.name) if is_squad else None


class WebAnno(JsonLayout):
    """WebAnno TSV 3, whose first line names the format."""

    is_table = True

    def rows(self, value: Any) -> Iterable[Row] | None:
        is_webanno = next(iter(value), "").startswith("#FORMAT=WebAnno TSV")
        return _refuse("WebAnno TSV is unsupported; export CoNLL 2002 or CoNLL-U", self.name) if is_webanno else None


def _refuse(problem: str, name: str) -> Iterator[Row]:
    """Return an iterator that raises an error; a layout that raises it while files are detected would not be found."""
    raise DataError(problem, name)
    yield {}
