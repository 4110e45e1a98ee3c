"""A pair of each record that has columns or keys.

The columns of source and target are found so:

1. The choice of the user (`PairChoice`): a name of the header, or a number from 1.
2. Names, without regard to case and signs: the first line of `USUAL` (`detection/pair_tables.py`) whose names are
   all there; else two languages (`en`, `german`) in their order. A target may be numbered: summary1, summary2 and
   summary3 are three references.
3. Without such names the first column is the source and the second the target. Columns with names must then be two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ensue.data.detection.format_table import TABBED
from ensue.data.detection.pair_tables import Columns, is_header, numbered, pairs_by_name
from ensue.data.lines import Lines
from ensue.data.pairs.pair import Pair, PairChoice, PairFormat, PairLayout
from ensue.data.records.json_objects import check_characters
from ensue.data.records.reader import Reader
from ensue.data.records.record import Column, columns_counted, named_column, told_apart
from ensue.data.records.tables import DIALECTS
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
    for found in (*by_name, *_by_order(columns, sources, targets)):
        if (not sources or sources == found[0]) and (not targets or targets == found[1]):
            return found[0], found[1] if choice.is_labeled else ()
    raise _unclear(columns, needs_target=choice.is_labeled and not targets, needs_source=not sources, file=file)


def taken_out(columns: Sequence[Column], name: str, file: str) -> tuple[Column | None, list[Column]]:
    """The column of that name, or number (None for no name), and the others."""
    found = named_column(columns, name, file) if name else None
    return found, [column for column in columns if column != found]


def has_header(rows: Sequence[Sequence[str]], choice: PairChoice) -> bool:
    """Whether the first row is a header: the user gives names, or it has names of source and target."""
    return choice.has_names or is_header(rows)


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


class RecordPairs(PairFormat):
    """A target is a text, or in JSON a list of references."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.name = reader.flat(), reader.name

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        rows, has_keys = self.reader.first(lines), self.reader.has_keys
        if not rows:
            raise DataError("no rows", lines.name)
        header = not has_keys and has_header(rows, choice)
        names = [name.strip() if header else name if has_keys else "" for name in rows[0]]
        columns = [Column(0 if has_keys else place, name) for place, name in enumerate(names, 1)]
        if choice.is_labeled and len(columns) < 2 and not has_keys:
            separator = "tab" if self.name in TABBED else "delimiter"
            raise DataError(f"{columns_counted(1)}; expected a source, a {separator} and a target", lines.name, 1)
        if not choice.is_labeled and not header and not has_keys and len(columns) == len(choice.sources):
            choice = choice._replace(sources=tuple(str(column.number) for column in columns))
        group, others = taken_out(columns, choice.group, lines.name)
        chosen = (*choice.sources, *choice.targets)
        sides = self.sides(others, choice, lines.name)
        sources, targets = (told_apart(side, columns, chosen, lines.name) for side in sides)
        return PairLayout(self.name, sources, targets, header, group=group)

    def sides(self, columns: list[Column], choice: PairChoice, name: str) -> tuple[Columns, Columns]:
        """The columns of the sources, and those of the targets."""
        return find_pair(columns, choice, name)

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        name, text = lines.name, self.reader.text
        needed = (*layout.sources, *layout.targets, *([layout.group] if layout.group else []))
        for record, values in self.reader.read(lines, header=layout.header, needed=needed):
            line = record.line
            sources = tuple([text(values, column, name, line) for column in layout.sources])
            targets = self._targets(values, layout.targets, name, line) if is_labeled else ()
            group = text(values, layout.group, name, line, numbers=True) if layout.group else ""
            yield Pair(sources, targets, name, line, group)

    def _targets(self, values: Any, columns: Columns, name: str, line: int) -> tuple[str, ...]:
        """The texts of the columns. Of several, some records may have fewer."""
        found: list[str] = []
        for column in columns:
            value = self.reader.at(values, column)
            if isinstance(value, list) and all(type(text) is str for text in value):
                for text in value:
                    check_characters(text, column, name, line)
                found += value
            elif value is not None or len(columns) == 1:
                found.append(self.reader.text(values, column, name, line))
        return tuple(found)


class Sigmorphon(RecordPairs):
    """Lemma, inflected form and features between tabs, as in SIGMORPHON 2017; without targets lemma and features."""

    def __init__(self) -> None:
        super().__init__(DIALECTS[0])
        self.name = "sigmorphon"

    def sides(self, columns: list[Column], choice: PairChoice, name: str) -> tuple[Columns, Columns]:
        if not choice.sources and not choice.targets:
            is_whole = len(columns) > 2
            choice = choice._replace(sources=("1", "3" if is_whole else "2"), targets=("2",) if is_whole else ())
        return super().sides(columns, choice, name)
