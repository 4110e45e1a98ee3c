"""Whether a file holds pairs and no labels: by its format, the names of its columns, or their contents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from ensue.data.detection import signs
from ensue.data.detection.format_table import PAIRS, SENTENCES, by_suffix, only_pairs
from ensue.data.detection.formats import pair_format
from ensue.data.lines import Lines, is_blank
from ensue.data.records.json_objects import with_inner
from ensue.data.records.record import LONGEST_NAME, Column, simplified
from ensue.data.records.tables import DIALECTS
from ensue.errors import DataError
from ensue.extension import entries

Columns = tuple[Column, ...]

_ANSWER = ("answer", "response", "reply", "output", "completion")
USUAL: tuple[tuple[tuple[tuple[str, ...], ...], tuple[str, ...]], ...] = (
    ((("question",), ("context", "passage")), ("answer",)),
    ((("instruction",), ("input",)), ("output", "response")),
    ((("lemma",), ("features", "tags", "msd")), ("form", "inflectedform", "inflection", "target")),
    ((("source", "src", "sourcetext"),), ("target", "tgt", "trg", "targettext", "reference", "ref", "translation")),
    ((("input", "inputtext"),), ("output", "outputtext", "target")),
    ((("dialogue", "dialog", "conversation"),), ("summary", "response", "reply")),
    ((("article", "document", "text"),), ("summary", "highlights", "abstract", "headline", "translation")),
    ((("question", "query", "prompt", "context"),), _ANSWER),
    ((("word", "grapheme", "spelling"),), ("pronunciation", "phoneme", "ipa", "arpabet")),
)
"""Each: the names that a source column may have, for each source column, and those of the target; also as plurals."""
_LANGUAGES = """
en de fr es it pt nl sv da no nb nn fi et lv lt pl cs sk sl hr sr bs mk bg ro hu el tr ru uk be kk uz az ka hy he ar fa
ur hi bn ta te ml kn mr gu pa ne si my th lo km vi id ms tl jv zh ja ko mn bo sw am ha yo zu xh af eu ca gl cy ga gd is
fo mt sq la eo english german french spanish italian portuguese dutch swedish danish norwegian finnish polish czech
russian ukrainian turkish greek hungarian romanian arabic hebrew hindi chinese japanese korean vietnamese latin
"""
LANGUAGES = frozenset(_LANGUAGES.split())
_SHORT = 3
"""The mean length of cells below which the names of languages may be words like all others: "it" and "es"."""
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
    if by_suffix(SENTENCES, name) and not by_suffix(PAIRS, name):
        return ""
    found = pair_format(Lines(head, name), is_labeled=True)
    is_parted = signs.is_parted(head)
    if found in only_pairs():
        return found if found in entries("pair_format") or not is_parted else ""
    rows = _rows(head, found, name)
    if rows and is_header(rows):
        columns = [Column(place, cell.strip()) for place, cell in enumerate(rows[0], 1)]
        return found if _have_pairs(columns, [[*row, *[""] * len(columns)] for row in rows[1:]]) else ""
    if found != "tsv" or is_parted or not _have_two_texts(rows):
        return ""
    lines = [line for line in head if not is_blank(line)]
    is_long = bool(by_suffix(PAIRS, name)) or len(rows) >= _ROWS_OF_WORDS or signs.have_texts(lines)
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
    return not signs.are_few([value for row in rows for place in places if isinstance(value := row[place], str)])


def _have_two_texts(rows: Sequence[Sequence[str]]) -> bool:
    if not rows or any(len(row) != 2 for row in rows) or {simplified(cell) for cell in rows[0]} & (_LABELS | _TEXTS):
        return False
    columns = list(zip(*rows, strict=True))
    have_blanks = [any(" " in cell.strip() for cell in column) for column in columns]
    return have_blanks[0] == have_blanks[1] and not any(map(signs.are_few, columns))


def pairs_by_name(columns: Sequence[Column], *, is_labeled: bool = True) -> Iterator[tuple[Columns, Columns]]:
    """All choices of source and target columns by their names, the best first.

    Unless `is_labeled`, there may be no targets.
    """
    named = [(simplified(column.name), column) for column in columns]
    some = [one for one in named if one[0][-1:].isdecimal()]
    for slots, names in USUAL:
        sources = [_first_named(named, slot) for slot in slots]
        targets = _first_named(named, names) or next(filter(None, (_numbered(some, name) for name in names)), ())
        if all(sources) and (targets or not is_labeled):
            yield tuple(column for source in sources for column in source), targets
    languages = [column for column in columns if is_language(column)]
    if len(languages) == 3:  # a number of the row rather than Indonesian
        languages = [column for column in languages if simplified(column.name) != "id"]
    if len(languages) == 2:
        yield (languages[0],), (languages[1],)
        yield (languages[1],), (languages[0],)


def numbered(columns: Sequence[Column], name: str) -> Columns:
    """`summary1`, `summary2`, ... in the order of their numbers, for `summary`."""
    return _numbered([(simplified(column.name), column) for column in columns], simplified(name))


def _numbered(named: Sequence[tuple[str, Column]], name: str) -> Columns:
    wanted = re.compile(rf"{re.escape(name)}(\d{{1,9}})")
    found = [(int(match[1]), column) for known, column in named if (match := wanted.fullmatch(known))]
    return tuple(column for _, column in sorted(found))


def is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has names of source and target, and does not occur again."""
    first, body = rows[0] if rows else [], rows[1:]
    if len(first) < 2 or max(map(len, first)) > LONGEST_NAME or first in body:
        return False
    found = next(pairs_by_name([Column(place, name) for place, name in enumerate(first, 1)]), None)
    if found is None or not all(is_language(column) for side in found for column in side):
        return found is not None
    return not body or sum(len(cell) for row in body for cell in row) > _SHORT * len(body) * len(first)


def is_language(column: Column) -> bool:
    """Whether it is named as a language is, or its code."""
    return simplified(column.name) in LANGUAGES


def _first_named(named: Sequence[tuple[str, Column]], names: Sequence[str]) -> Columns:
    found = ([column for known, column in named if known in (name, f"{name}s")][:1] for name in names)
    return next((tuple(first) for first in found if first), ())
