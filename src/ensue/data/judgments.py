"""Human judgments, and the reader of pairs of texts with their similarity in published formats.

Fields are separated by tabs, without quoting. If the first row names the columns (SICK), the names determine the
columns. A row of seven or more fields has the format of the STS benchmark: the fifth field is the score, the next two
are the texts. A row of three fields has two texts, and a score before or after them.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ensue.data.division import SelectableList
from ensue.data.lines import Lines
from ensue.data.sources import TextSource
from ensue.errors import DataError, quote

COLUMN_NAMES = (
    ("sentence_a", "sentence1", "sentence_1", "sentence 1", "text1", "text_a", "s1"),
    ("sentence_b", "sentence2", "sentence_2", "sentence 2", "text2", "text_b", "s2"),
    ("relatedness_score", "similarity", "similarity_score", "score"),
)
"""The usual names of the columns of both texts and of the score, in lower case."""
STS_BENCHMARK = (5, 6, 4)
"""The columns of both texts and of the score in the STS benchmark, from 0."""


class Judgment(NamedTuple):
    """Two texts or words with the `score` of their similarity, or the words of an analogy: a is to b as c is to d."""

    texts: tuple[str, ...]
    score: float = math.nan
    section: str = ""
    file: str = ""

    @property
    def is_analogy(self) -> bool:
        """Whether these are the four words of an analogy."""
        return len(self.texts) == 4


def read_judged_texts(location: str | Path, *, encoding: str = "utf-8") -> SelectableList[Judgment]:
    """Return the pairs of texts at a location. Raises DataError (file:line) for an invalid row."""
    paths = TextSource(location, encoding=encoding).paths
    pairs = SelectableList(pair for path in paths for pair in _read_rows(path, encoding))
    if not pairs:
        raise DataError("no pair of texts with a score", location)
    return pairs


def _read_rows(path: Path, encoding: str) -> Iterator[Judgment]:
    header_columns: list[int] = []
    for index, (number, line) in enumerate(Lines.of(path, encoding=encoding)):
        fields = [field.strip() for field in line.rstrip("\r\n").split("\t")]
        if fields == [""]:
            continue
        if index == 0:
            lowered = [*map(str.lower, fields)]
            indices = [next((lowered.index(n) for n in names if n in lowered), -1) for names in COLUMN_NAMES]
            if -1 not in indices:
                header_columns = indices
                continue
        columns = header_columns or _find_columns(fields)
        if columns is None or max(columns) >= len(fields) or (score := parse_number(fields[columns[2]])) is None:
            expected = "expected two texts and their similarity between tabs"
            raise DataError(f"{expected}, found {len(fields)} fields: {quote(line.strip())}", path, number)
        yield Judgment((fields[columns[0]], fields[columns[1]]), score)


def _find_columns(fields: list[str]) -> tuple[int, int, int] | None:
    if len(fields) >= 7:
        return STS_BENCHMARK
    if len(fields) != 3:
        return None
    return (0, 1, 2) if parse_number(fields[2]) is not None else (1, 2, 0)


def parse_number(field: str) -> float | None:
    """Return a finite number; None for other text."""
    try:
        number = float(field)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
