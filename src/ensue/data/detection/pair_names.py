"""The names that columns of pairs usually have: source and target, dialogue and summary, two languages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ensue.data.records.columns import LONGEST_NAME, Column, simplified

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


def pairs_by_name(columns: Sequence[Column], *, is_labeled: bool = True) -> Iterator[tuple[Columns, Columns]]:
    """All choices of source and target columns by their names, the best first.

    Unless `is_labeled`, there may be no targets.
    """
    for slots, names in USUAL:
        sources = [_first_named(columns, slot) for slot in slots]
        targets = _first_named(columns, names) or next(filter(None, (numbered(columns, name) for name in names)), ())
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
    wanted = re.compile(rf"{re.escape(simplified(name))}(\d{{1,9}})")
    found = [(int(match[1]), column) for column in columns if (match := wanted.fullmatch(simplified(column.name)))]
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


def _first_named(columns: Sequence[Column], names: Sequence[str]) -> Columns:
    for name in names:
        if found := [column for column in columns if simplified(column.name) in (name, f"{name}s")]:
            return (found[0],)
    return ()
