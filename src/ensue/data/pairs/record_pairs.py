"""A pair of each record that has columns or keys, which `pair_columns` finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ensue.data.detection.format_table import TABBED
from ensue.data.detection.pair_tables import Columns
from ensue.data.lines import Lines
from ensue.data.pairs.pair import Pair, PairChoice, PairFormat, PairLayout
from ensue.data.pairs.pair_columns import find_pair, has_header, taken_out
from ensue.data.records.columns import Column, columns_counted, told_apart
from ensue.data.records.json_objects import check_characters
from ensue.data.records.reader import Reader
from ensue.data.records.tables import DIALECTS
from ensue.errors import DataError


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
