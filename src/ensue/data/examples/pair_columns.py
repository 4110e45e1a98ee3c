"""The columns of sources and targets in a table or in JSON.

1. The choice of the user (`PairChoice`): a name of the header, or a number from 1.
2. Names, without regard to case and signs: the first line of `USUAL` (`detection/pair_tables.py`) whose names are
   all there; else two languages (`en`, `german`) in their order. A target may be numbered: summary1, summary2 and
   summary3 are three references.
3. Without such names the first column is the source and the second the target. Columns with names must then be two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ensue.data.detection.pair_tables import Columns, numbered, pairs_by_name
from ensue.data.examples.layout import PairChoice
from ensue.data.records.record import Column, named_column
from ensue.errors import DataError


def find_pair(columns: Sequence[Column], choice: PairChoice, file: str) -> tuple[Columns, Columns]:
    """The columns of the sources, and of the targets (none unless labeled). Raises DataError if they are not found."""
    sources = tuple(named_column(columns, name, file) for name in choice.sources)
    targets: Columns = ()
    if choice.is_labeled:
        targets = tuple(column for name in choice.targets for column in _targets(columns, name, file))
    if twice := next((column for column in sources if column in targets), None):
        raise DataError(f"{twice} is named as source and as target", file)
    if sources and (targets or not choice.is_labeled):
        return sources, targets
    by_name = pairs_by_name(columns, is_labeled=choice.is_labeled)
    for sides in (*by_name, *_by_order(columns, sources, targets)):
        if (not sources or sources == sides[0]) and (not targets or targets == sides[1]):
            return sides[0], sides[1] if choice.is_labeled else ()
    raise _unclear(columns, needs_target=choice.is_labeled and not targets, needs_source=not sources, file=file)


def _targets(columns: Sequence[Column], name: str, file: str) -> Columns:
    """The column of that name or number, or those with a number after the name."""
    is_there = any(name in (column.name, str(column.number)) for column in columns)
    return (not is_there and numbered(columns, name)) or (named_column(columns, name, file),)


def _by_order(columns: Sequence[Column], sources: Columns, targets: Columns) -> Iterator[tuple[Columns, Columns]]:
    free = [column for column in columns if column not in sources and column not in targets]
    needed = (not sources) + (not targets)
    has_names = any(column.name for column in columns)
    if len(free) >= needed and (len(free) == needed or not has_names):
        yield sources or (free[0],), targets or (free[needed - 1],)
    elif len(free) == 1 and not sources:  # no targets there
        yield (free[0],), ()


def _unclear(columns: Sequence[Column], *, needs_source: bool, needs_target: bool, file: str) -> DataError:
    sides = ["source"] * needs_source + ["target"] * needs_target
    settings = "--set " + " and ".join(f"data.{side}s=..." for side in sides)
    options = " and ".join(f"--{side}s NAME" for side in sides)
    known = ", ".join(map(str, columns))
    columns_are = f"which column is the {' and which the '.join(sides)}: there are {known}"
    return DataError(f"cannot tell {columns_are}; {settings} says it", file, options={settings: options})
