"""Tables: a pair in each row, with columns for sources and targets. `pair_columns` finds them."""

from __future__ import annotations

from collections.abc import Iterator

from ensue.data.columns import Column, columns_counted, told_apart
from ensue.data.detection.pair_names import Columns
from ensue.data.lines import Lines
from ensue.data.pairs.format import PairFormat
from ensue.data.pairs.pair import Pair, PairChoice, PairLayout
from ensue.data.pairs.pair_columns import find_pair, has_header, taken_out
from ensue.data.tables import Dialect
from ensue.errors import DataError


class PairTable(PairFormat):
    """Rows of fields. Every row must have as many as the first."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect, self.name = dialect, dialect.name

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        rows = self.dialect.first_values(lines)
        if not rows:
            raise DataError("no rows", lines.name)
        header = has_header(rows, choice)
        names = [name.strip() for name in rows[0]] if header else [""] * len(rows[0])
        columns = [Column(place, name) for place, name in enumerate(names, 1)]
        if choice.is_labeled and len(columns) < 2:
            advice = f"expected a source, a {'tab' if self.dialect.delimiter == chr(9) else 'delimiter'} and a target"
            raise DataError(f"{columns_counted(1)}; {advice}", lines.name, 1)
        if not choice.is_labeled and not header and len(columns) == len(choice.sources):
            choice = choice._replace(sources=tuple(str(column.number) for column in columns))
        group, others = taken_out(columns, choice.group, lines.name)
        sides = self.sides(others, choice, lines.name)
        chosen = (*choice.sources, *choice.targets)
        sources, targets = (told_apart(side, columns, chosen, lines.name) for side in sides)
        return PairLayout(self.name, sources, targets, header, group=group)

    def sides(self, columns: list[Column], choice: PairChoice, name: str) -> tuple[Columns, Columns]:
        """The columns of the sources, and those of the targets."""
        return find_pair(columns, choice, name)

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        value = self.dialect.value
        sources, targets = ([column.number - 1 for column in side] for side in (layout.sources, layout.targets))
        needed = (*layout.sources, *layout.targets, *([layout.group] if layout.group else []))
        for record, fields in self.dialect.body(lines, has_header=layout.header, needed=needed):
            yield Pair(
                tuple([value(fields[place]) for place in sources]),
                tuple([value(fields[place]) for place in targets]) if is_labeled else (),
                lines.name,
                record.line,
                value(fields[layout.group.number - 1]) if layout.group else "",
            )


class Sigmorphon(PairTable):
    """Lemma, inflected form and features between tabs, as in SIGMORPHON 2017; without targets lemma and features."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self.name = "sigmorphon"

    def sides(self, columns: list[Column], choice: PairChoice, name: str) -> tuple[Columns, Columns]:
        if not choice.sources and not choice.targets:
            is_whole = len(columns) > 2
            choice = choice._replace(sources=("1", "3" if is_whole else "2"), targets=("2",) if is_whole else ())
        return super().sides(columns, choice, name)
