"""Readers of tables as JSON: the orients of pandas' `to_json`, rows of the datasets server, arrays of cells, and
rows with a word and the number of its sentence, as in the data set NER of Kaggle.

Sources: pandas, "DataFrame.to_json"; Hugging Face, "Download slices of rows".
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, compress
from typing import Any

from ensue.data.detection.pair_tables import HEADER_WORDS
from ensue.data.examples.document_columns import TEXTS
from ensue.data.json_layouts import DocumentLayout, JsonLayout, Row
from ensue.data.records.record import simplify

_TEXT_NAMES = {name for group in TEXTS for name in group}


class ColumnsOrient(DocumentLayout):
    """A table of orient "columns", {"text": {"0": "Good."}}, or "index", {"0": {"text": "Good."}}."""

    def rows(self, value: Any) -> Iterable[Row] | None:
        if not isinstance(value, dict) or not value or not all(isinstance(inner, dict) for inner in value.values()):
            return None
        if len({tuple(inner) for inner in value.values()}) > 1 or not next(iter(value.values())):
            return None
        keys = list(next(iter(value.values())))
        if all(map(str.isdecimal, value)) or _TEXT_NAMES & {*map(simplify, keys)}:
            return list(value.values())
        if all(map(str.isdecimal, keys)) or _TEXT_NAMES & {*map(simplify, value)}:
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
        texts = [value[name] for name in value if simplify(name) in _TEXT_NAMES]
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


_WORDS, _LABELS = HEADER_WORDS["word_rows"], [*HEADER_WORDS["word_rows"]["labels"], *chain(*HEADER_WORDS["labels"])]
_NUMBER = re.compile(r"(?:[^\W\d_]+\W*)?\d+(?:\.0)?")  # such as "Sentence: 1"
_OF_NUMBER = re.compile(r"(?<=.)(id|idx|index|nr|no|num|number)$")  # the end of a column name such as "sentence_id"


@lru_cache(maxsize=8)
def _find_columns(keys: tuple[str, ...]) -> tuple[list[int], list[str]]:
    """Return the indices of the columns (sentence, word, label) if all exist, and the output name of each column."""
    names = [re.sub(r"[\W_]", "", key.casefold()) for key in keys]
    numbers = next((n for n, name in enumerate(names) if _OF_NUMBER.sub("", name) in _WORDS["sentences"]), -1)
    groups = (_WORDS["words"], _LABELS)
    columns = [numbers, *(next((names.index(name) for name in group if name in names), -1) for group in groups)]
    renamed = dict(zip(columns, ("", "tokens", "labels"), strict=True))
    return [] if -1 in columns else columns, [renamed.get(index, key) for index, key in enumerate(keys)]


class WordRow(JsonLayout):
    """A row with a word, its label, and the number of its sentence; the number may be empty after the first word."""

    what = "a row with a sentence, a word and a label"
    is_buffered = is_table = True

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._number, self._sentence = "", dict[str, list[str]]()

    def rows(self, value: Any) -> Iterable[Row] | None:
        columns, names = _find_columns(tuple(value))
        cells = ["" if cell is None else str(cell).strip() for cell in value.values()]
        number = cells[columns[0]] if columns else ""
        if not columns or not (_NUMBER.fullmatch(number) if number else self._number):
            return None
        sentences = self.rest() if number not in ("", self._number) else ()
        self._number = number or self._number
        for name, cell in zip(names, cells, strict=True) if cells[columns[1]] else ():
            if name:
                self._sentence.setdefault(name, []).append(cell)
        return sentences

    def rest(self) -> Iterable[Row]:
        sentence, self._sentence = self._sentence, {}
        return [sentence] if sentence else []
