"""Readers of tables as JSON: the orients of pandas' `to_json`, rows of the datasets server, and arrays of cells.

Sources: pandas, "DataFrame.to_json"; Hugging Face, "Download slices of rows".
"""

from collections.abc import Iterable
from itertools import compress
from typing import Any

from ensue.data.examples.document_columns import TEXTS
from ensue.data.json_layouts import DocumentLayout, JsonLayout, Row
from ensue.data.records.record import simplified

_TEXT_NAMES = {name for group in TEXTS for name in group}


class ColumnsOrient(DocumentLayout):
    """A table of orient "columns", {"text": {"0": "Good."}}, or "index", {"0": {"text": "Good."}}."""

    def rows(self, value: Any) -> Iterable[Row] | None:
        if not isinstance(value, dict) or not value or not all(isinstance(inner, dict) for inner in value.values()):
            return None
        if len({tuple(inner) for inner in value.values()}) > 1 or not next(iter(value.values())):
            return None
        keys = list(next(iter(value.values())))
        if all(map(str.isdecimal, value)) or _TEXT_NAMES & {*map(simplified, keys)}:
            return list(value.values())
        if all(map(str.isdecimal, keys)) or _TEXT_NAMES & {*map(simplified, value)}:
            return [{name: column[key] for name, column in value.items()} for key in keys]
        return None


class SplitOrient(DocumentLayout):
    """A table of orient "split": {"columns": ["text"], "data": [["Good."], ["Bad."]]}."""

    def rows(self, value: Any) -> Iterable[Row] | None:
        if not isinstance(value, dict) or not {"columns", "data"} <= value.keys():
            return None
        columns, data = value["columns"], value["data"]
        if not isinstance(columns, list) or not all(isinstance(row, list) for row in data):
            return None
        return [dict(zip(map(str, columns), row, strict=False)) for row in data]


class Lists(DocumentLayout):
    """A table with a list for each column (`to_dict("list")`): {"text": ["Good.", "Bad."], "label": [1, 0]}."""

    def rows(self, value: Any) -> Iterable[Row] | None:
        columns = list(value.values())
        lengths = {len(column) for column in columns if isinstance(column, list)}
        texts = [value[name] for name in value if simplified(name) in _TEXT_NAMES]
        are_lists = all(isinstance(column, list) for column in columns)
        if len(columns) < 2 or len(lengths) != 1 or not texts or not are_lists:
            return None
        return [dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True)]


class NumberedRow(JsonLayout):
    """A row of the datasets server, with its number: {"row_idx": 0, "row": {"text": "Good."}}."""

    what = 'an object with "row_idx" and "row"'

    def rows(self, value: Any) -> Iterable[Row] | None:
        return [value["row"]] if "row_idx" in value and isinstance(value["row"], dict) else None


class Values(JsonLayout):
    """An array of the cells of a row (orient "values"): ["Good.", 1]. The column names are 1, 2 and so on."""

    what = "strings and numbers"

    def rows(self, value: Any) -> Iterable[Row] | None:
        if not isinstance(value, list) or len(value) < 2 or not any(isinstance(cell, str) for cell in value):
            return None
        are_cells = all(isinstance(cell, str | int | float | None) for cell in value)
        return [{str(number): cell for number, cell in enumerate(value, 1)}] if are_cells else None


class Indicators(DocumentLayout):
    """Texts with multi-hot labels, {"classes": ["good", "bad"], "data": [{"text": "Good.", "labels": [1, 0]}]}."""

    def rows(self, value: Any) -> Iterable[Row] | None:
        names = value["classes"]
        (rows,) = (rows for key, rows in value.items() if isinstance(rows, list) and key != "classes")
        if not all({*row["labels"]} <= {0, 1} and len(row["labels"]) == len(names) for row in rows):
            return None
        return [{**row, "labels": list(compress(names, row["labels"]))} for row in rows]
