"""Whether a file holds pairs and no labels: by its format, the names of its columns, or their contents."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ensue.data.detection import line_signs
from ensue.data.detection.format_names import ONLY_PAIRS, PAIR_SUFFIXES, SENTENCE_SUFFIXES, suffix
from ensue.data.detection.formats import pair_format
from ensue.data.detection.pair_names import is_header, pairs_by_name
from ensue.data.lines import Lines, is_blank
from ensue.data.records.columns import Column, simplified
from ensue.data.records.json_objects import with_inner
from ensue.data.records.tables import DIALECTS
from ensue.errors import DataError

_LABELS = {"label", "labels", "class", "classes", "category", "sentiment", "goldlabel"}
"""With a column of this name they are labeled texts."""
_TEXTS = {"text", "texts", "sentence", "sentences", "review", "tweet"}
_ROWS_OF_WORDS = 20
"""So many rows of two words are pairs: fewer may be a sentence with a label for each word."""


def pairs_seen(head: Sequence[str], name: str) -> str:
    """The format of a file that certainly holds pairs, by its name and first lines; "" for another, and for JSON.

    A table does if its header has the names. Without a header it does if it has two columns, both of texts or both of
    words, whose values occur again too seldom for labels, and no blank lines, which separate labeled sentences.
    """
    by_name = suffix(name)
    if by_name in SENTENCE_SUFFIXES and by_name not in PAIR_SUFFIXES:
        return ""
    found = pair_format(Lines(head, name), is_labeled=True)
    is_parted = line_signs.is_parted(head)
    if found in ONLY_PAIRS:
        return found if found == "tmx" or not is_parted else ""
    rows = _rows(head, found, name)
    if rows and is_header(rows):
        columns = [Column(place, cell.strip()) for place, cell in enumerate(rows[0], 1)]
        return found if _have_pairs(columns, [[*row, *[""] * len(columns)] for row in rows[1:]]) else ""
    if found != "tsv" or is_parted or not _have_two_texts(rows):
        return ""
    lines = [line for line in head if not is_blank(line)]
    is_long = by_name in PAIR_SUFFIXES or len(rows) >= _ROWS_OF_WORDS or line_signs.have_texts(lines)
    return found if is_long else ""


def has_pair_keys(records: Sequence[dict[str, Any]]) -> bool:
    """Whether JSON objects, or objects of texts inside of them, have keys of source and target."""
    records = [*map(with_inner, records)]
    columns = [Column(place, key) for place, key in enumerate(dict.fromkeys(key for row in records for key in row), 1)]
    return _have_pairs(columns, [[record.get(column.name) for column in columns] for record in records])


def _rows(head: Sequence[str], format: str, name: str) -> list[list[str]]:
    """The first rows of a table; none for another format."""
    dialect = next((dialect for dialect in DIALECTS if dialect.name == format), None)
    with suppress(DataError):  # which reading will raise
        return dialect.first(Lines(head, name)) if dialect else []
    return []


def _have_pairs(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> bool:
    found = next(pairs_by_name(columns), None)
    if found is None or any(simplified(column.name) in _LABELS for column in columns):
        return False
    places = [column.number - 1 for column in found[1]]
    return not line_signs.are_few([value for row in rows for place in places if isinstance(value := row[place], str)])


def _have_two_texts(rows: Sequence[Sequence[str]]) -> bool:
    if not rows or any(len(row) != 2 for row in rows) or {simplified(cell) for cell in rows[0]} & (_LABELS | _TEXTS):
        return False
    columns = list(zip(*rows, strict=True))
    have_blanks = [any(" " in cell.strip() for cell in column) for column in columns]
    return have_blanks[0] == have_blanks[1] and not any(map(line_signs.are_few, columns))
