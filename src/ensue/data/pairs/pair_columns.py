"""The columns of a table, or the keys of JSON, that hold source and target.

1. What the person says (`PairChoice`): a name of the header, or a number from 1.
2. Names, without regard to case and signs: the first line of `USUAL` of which all are there; else two languages
   (`en`, `german`) in their order. A target may be numbered: summary1, summary2, summary3 are three references.
3. Without such names the first column is the source and the second the target; where columns have names, only if there
   are no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ensue.data.columns import LONGEST_NAME, Column, named_column, simplified
from ensue.data.pairs.pair import PairChoice
from ensue.errors import DataError

Columns = tuple[Column, ...]

_ANSWER = ("answer", "answers", "response", "reply", "output", "completion")
USUAL: tuple[tuple[tuple[tuple[str, ...], ...], tuple[str, ...]], ...] = (
    ((("question",), ("context", "passage")), ("answer", "answers")),
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


def find_pair(columns: Sequence[Column], choice: PairChoice, file: str) -> tuple[Columns, Columns]:
    """Those of the sources, and of the targets (none unless labeled). DataError where they cannot be told."""
    sources = tuple(named_column(columns, name, file) for name in choice.sources)
    targets: Columns = ()
    if choice.is_labeled:
        targets = tuple(column for name in choice.targets for column in _targets(columns, name, file))
    if twice := next((column for column in sources if column in targets), None):
        raise DataError(f"{twice} is named as source and as target", file)
    if sources and (targets or not choice.is_labeled):
        return sources, targets
    for found in (*_by_name(columns, is_labeled=choice.is_labeled), *_by_order(columns, sources, targets)):
        if (not sources or sources == found[0]) and (not targets or targets == found[1]):
            return found[0], found[1] if choice.is_labeled else ()
    sides = " and ".join(["source"] * (not sources) + ["target"] * (choice.is_labeled and not targets))
    keys = " and ".join(f"data.{side}s=..." for side in sides.split(" and "))
    known = ", ".join(map(str, columns))
    raise DataError(f"cannot tell which column is the {sides}: there are {known}; --set {keys} names it", file)


def has_header(rows: Sequence[Sequence[str]], choice: PairChoice) -> bool:
    """Whether the first row is one: names are asked for, or those of source and target stand in it, and not below."""
    if choice.has_names:
        return True
    first, body = rows[0] if rows else [], rows[1:]
    if len(first) < 2 or max(map(len, first)) > LONGEST_NAME or any(first == row for row in body):
        return False
    columns = [Column(place, name) for place, name in enumerate(first, 1)]
    found = next(_by_name(columns, is_labeled=True), None)
    if found is None:
        return False
    named = [column for side in found for column in side]
    if all(simplified(column.name) in LANGUAGES for column in named):  # "it" and "es" are also words
        return not body or sum(len(cell) for row in body for cell in row) > 3 * len(body) * len(first)
    return True


def numbered(columns: Sequence[Column], name: str) -> Columns:
    """`summary1`, `summary2`, ... in the order of their numbers, for `summary`."""
    wanted = re.compile(rf"{re.escape(simplified(name))}(\d+)")
    found = [(int(match[1]), column) for column in columns if (match := wanted.fullmatch(simplified(column.name)))]
    return tuple(column for _, column in sorted(found))


def _targets(columns: Sequence[Column], name: str, file: str) -> Columns:
    """The column of that name or number, or its numbered ones."""
    is_there = any(name in (column.name, str(column.number)) for column in columns)
    return (not is_there and numbered(columns, name)) or (named_column(columns, name, file),)


def _by_name(columns: Sequence[Column], *, is_labeled: bool) -> Iterator[tuple[Columns, Columns]]:
    for slots, names in USUAL:
        sources = [_first_named(columns, slot) for slot in slots]
        targets = _first_named(columns, names) or next(filter(None, (numbered(columns, name) for name in names)), ())
        if all(sources) and (targets or not is_labeled):
            yield tuple(column for source in sources for column in source), targets
    languages = [column for column in columns if simplified(column.name) in LANGUAGES]
    if len(languages) == 2:
        yield (languages[0],), (languages[1],)
        yield (languages[1],), (languages[0],)


def _first_named(columns: Sequence[Column], names: Sequence[str]) -> Columns:
    for name in names:
        if found := [column for column in columns if simplified(column.name) in (name, f"{name}s")]:
            return (found[0],)
    return ()


def _by_order(columns: Sequence[Column], sources: Columns, targets: Columns) -> Iterator[tuple[Columns, Columns]]:
    free = [column for column in columns if column not in sources and column not in targets]
    needed = (not sources) + (not targets)
    has_names = any(column.name for column in columns)
    if len(free) >= needed and (len(free) == needed or not has_names):
        yield sources or (free[0],), targets or (free[needed - 1],)
    elif len(free) == 1 and not sources:  # no targets there
        yield (free[0],), ()
