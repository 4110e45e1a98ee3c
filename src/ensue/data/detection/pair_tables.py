"""Detection of pairs in tables and JSON from the format, the names of columns, or the content."""

import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from ensue.data.detection import signs
from ensue.data.detection.format_table import PAIRS, SENTENCES, format_by_suffix, pair_format, pair_only_formats
from ensue.data.lines import Lines, is_blank
from ensue.data.records.json_objects import flatten_inner
from ensue.data.records.record import MAX_NAME_CHARACTERS, Column, simplify
from ensue.data.records.tables import DIALECTS
from ensue.errors import DataError
from ensue.extension import entries
from ensue.version import package_text

Columns = tuple[Column, ...]
Sides = tuple[Columns, Columns]

HEADER_WORDS = tomllib.loads(package_text("data/detection/header_words.toml"))
"""Names of columns by their meaning."""
USUAL_NAMES = [([*map(tuple, sources)], tuple(targets)) for *sources, targets in HEADER_WORDS["sides"]]
"""Usual names of the source columns (a tuple for each column) and of the target column, in the singular."""
LANGUAGES = frozenset(HEADER_WORDS["languages"].split())
_REGION = re.compile(r"(?<=^[A-Za-z]{2})[-_]([A-Z]{2}|[A-Z][a-z]{3})$|(?<=^[a-z]{3})_[A-Z][a-z]{3}$")
_CREDIT = "CC-BY"
"""The beginning of the third column of ManyThings, which credits the authors."""
_MAX_SHORT_CHARACTERS = 3
"""The maximum length of short words, and mean length of short cells, where "it" and "es" need not be languages."""
_LABELS, _TEXTS = ({*HEADER_WORDS[key]} for key in ("labels_alone", "texts_alone"))
"""Usual names of labels, which tables of pairs do not have, and of texts."""
_MIN_ROWS_OF_WORDS = 20
"""The minimum number of rows of two words. Fewer rows may be a sentence with a label for each word."""


def certain_pair_format(head: Sequence[str], name: str) -> str:
    """Return the format of a file if it certainly has pairs; otherwise, and for JSON, "".

    A table has pairs if its header has the names of source and target. It also has pairs if it has two columns, both of
    texts or both of single words, with too many distinct values for labels, and without blank lines between sentences.
    """
    if format_by_suffix(SENTENCES, name) and not format_by_suffix(PAIRS, name):
        return ""
    result = pair_format(Lines(head, name), is_labeled=True)
    has_sentence_breaks = signs.has_sentence_breaks(head)
    if result in pair_only_formats():
        return result if result in entries("pair_format") or not has_sentence_breaks else ""
    rows: list[list[str]] = []
    with suppress(DataError):  # reading raises the error later
        rows = next((dialect.first_rows(Lines(head, name)) for dialect in DIALECTS if dialect.name == result), [])
    if rows and is_header(rows):
        columns = [Column(number, cell.strip()) for number, cell in enumerate(rows[0], 1)]
        padded_rows = [[*row, *[""] * len(columns)] for row in rows[1:]]  # rows may be too short
        return result if _have_pairs(columns, padded_rows) else ""
    if result != "tsv" or has_sentence_breaks or not _have_two_texts(rows):
        return ""
    lines = [line for line in head if not is_blank(line)]
    is_long = bool(format_by_suffix(PAIRS, name)) or len(rows) >= _MIN_ROWS_OF_WORDS or signs.have_texts(lines)
    return result if is_long else ""


def has_pair_keys(records: Sequence[dict[str, Any]]) -> bool:
    """Return whether JSON objects, or objects of texts inside them, have the names of source and target as keys."""
    records = [*map(flatten_inner, records)]
    columns = [Column(n, key) for n, key in enumerate(dict.fromkeys(key for row in records for key in row), 1)]
    return _have_pairs(columns, [[record.get(column.name) for column in columns] for record in records])


def _have_pairs(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> bool:
    result = next(pairs_by_name(columns), None)
    if result is None or any(simplify(column.name) in _LABELS for column in columns):
        return False
    indices = [column.number - 1 for column in result[1]]
    return not signs.may_be_labels([cell for row in rows for index in indices if isinstance(cell := row[index], str)])


def _have_two_texts(rows: Sequence[Sequence[str]]) -> bool:
    indices = text_columns(rows)
    if len(indices) != 2 or {simplify(cell) for cell in rows[0]} & (_LABELS | _TEXTS):
        return False
    columns = [[row[index] for row in rows] for index in indices]
    have_blanks = [any(" " in cell.strip() for cell in column) for column in columns]
    return have_blanks[0] == have_blanks[1] and not any(map(signs.may_be_labels, columns))


def text_columns(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the indices of columns with texts: all except ids of sentences (Tatoeba) and a last credit column.

    The result is empty if rows have different numbers of columns.
    """
    columns = list(zip(*rows, strict=True)) if len({*map(len, rows)}) == 1 else []
    is_credited = len(columns) == 3 and all(cell.startswith(_CREDIT) for cell in columns[2])
    are_numbers = [all(map(str.isdecimal, column)) and len({*column}) == len(column) for column in columns]
    return [1, 3] if are_numbers == [True, False] * 2 else [*range(2 if is_credited else len(columns))]


def pairs_by_name(columns: Sequence[Column], *, is_labeled: bool = True) -> Iterator[Sides]:
    """Yield candidates of source and target columns by name, best first. Targets are optional unless `is_labeled`."""
    named = [(simplify(column.name), column) for column in columns]
    with_numbers = [(name, column) for name, column in named if name[-1:].isdecimal()]
    for slots, names in USUAL_NAMES:
        sources = [_find_first_named(named, slot) for slot in slots]
        references = filter(None, (_find_numbered(with_numbers, name) for name in names))
        targets = _find_first_named(named, names) or next(references, ())
        if all(sources) and (targets or not is_labeled):
            yield tuple(column for source in sources for column in source), targets
    languages = [column for column in columns if is_language(column)]
    if len(languages) == 3:  # "id" is the number of a row rather than Indonesian
        languages = [column for column in languages if simplify(column.name) != "id"]
    if len(languages) == 2:
        yield (languages[0],), (languages[1],)
        yield (languages[1],), (languages[0],)


def numbered_columns(columns: Sequence[Column], name: str) -> Columns:
    """Return the columns named `summary1`, `summary2`, ... for the name `summary`, sorted by number."""
    return _find_numbered([(simplify(column.name), column) for column in columns], simplify(name))


def _find_numbered(named: Sequence[tuple[str, Column]], name: str) -> Columns:
    pattern = re.compile(rf"{re.escape(name)}(\d{{1,9}})")
    result = [(int(match[1]), column) for column_name, column in named if (match := pattern.fullmatch(column_name))]
    return tuple(column for _, column in sorted(result))


def is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row has the names of source and target, and does not occur again."""
    header, body = rows[0] if rows else [], rows[1:]
    if len(header) < 2 or max(map(len, header)) > MAX_NAME_CHARACTERS or header in body:
        return False
    result = next(pairs_by_name([Column(number, name) for number, name in enumerate(header, 1)]), None)
    if result is None or not all(is_language(column) for side in result for column in side):
        return result is not None
    return not body or sum(len(cell) for row in body for cell in row) > _MAX_SHORT_CHARACTERS * len(body) * len(header)


def is_language(column: Column) -> bool:
    """Return whether a column is named after a language, as de, de-AT, deu_Latn, German, or "Texte allemand"."""
    words = [word for word in map(simplify, re.split(r"[\W_]+", column.name)) if len(word) > _MAX_SHORT_CHARACTERS]
    return simplify(_REGION.sub("", column.name)) in LANGUAGES or not LANGUAGES.isdisjoint(words)


def _find_first_named(named: Sequence[tuple[str, Column]], names: Sequence[str]) -> Columns:
    result = ([column for column_name, column in named if column_name in (name, f"{name}s")][:1] for name in names)
    return next((tuple(columns) for columns in result if columns), ())
