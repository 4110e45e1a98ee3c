"""Reader of tables with a word and the number of its sentence in each row, as in the data set NER of Kaggle."""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import Any

from ensue.data.detection.pair_tables import HEADER_WORDS
from ensue.data.json_layouts import JsonLayout, Row

_WORDS, _LABELS = HEADER_WORDS["word_rows"], [*HEADER_WORDS["word_rows"]["labels"], *chain(*HEADER_WORDS["labels"])]
_NUMBER = re.compile(r"(?:[^\W\d_]+\W*)?\d+(?:\.0)?")
_OF_NUMBER = re.compile(r"(?<=.)(id|idx|index|nr|no|num|number)$")


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
    is_table = True

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
