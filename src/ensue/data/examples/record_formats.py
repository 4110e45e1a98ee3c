"""Formats with an example in each record that has columns or keys: labeled texts, and pairs.

The columns of sources and targets are found so:

1. The choice of the user (`PairChoice`): a name of the header, or a number from 1.
2. Names, without regard to case and signs: the first line of `USUAL` (`detection/pair_tables.py`) whose names are
   all there; else two languages (`en`, `german`) in their order. A target may be numbered: summary1, summary2 and
   summary3 are three references.
3. Without such names the first column is the source and the second the target. Columns with names must then be two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ensue.data.detection.format_table import TABBED
from ensue.data.detection.pair_tables import Columns, is_header, numbered, pairs_by_name
from ensue.data.examples.document_columns import find_columns
from ensue.data.examples.example import Document, Pair, split_labels
from ensue.data.examples.layout import (
    DocumentChoice,
    DocumentFormat,
    DocumentLayout,
    PairChoice,
    PairFormat,
    PairLayout,
)
from ensue.data.lines import Lines
from ensue.data.records.json_objects import check_characters
from ensue.data.records.reader import Answer, Reader
from ensue.data.records.record import (
    Column,
    Record,
    columns_counted,
    distinct_columns,
    first_columns,
    group_and_others,
    named_column,
)
from ensue.data.records.tables import DIALECTS
from ensue.errors import DataError


class RecordDocuments(DocumentFormat):
    """A label is a text; in JSON also a number or boolean, or a list of them."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.name = reader, reader.name

    def layout(self, lines: Lines, choice: DocumentChoice) -> DocumentLayout:
        columns = find_columns(self.reader.first(lines), choice, lines.name, has_keys=self.reader.has_keys)
        return DocumentLayout(self.name, separator=choice.separator, **columns._asdict())

    def read(self, lines: Lines, layout: DocumentLayout, *, is_labeled: bool) -> Iterator[Document]:
        name, text = lines.name, self.reader.text
        needed = (*layout.texts, *(column for column in (layout.labels, layout.group) if column))
        for record, values in self.reader.read(lines, header=layout.header, needed=needed):
            texts = tuple([text(values, column, name, record.line) for column in layout.texts])
            if layout.joined:
                texts = (" ".join(text for text in texts if text),)
            labels = self._labels(values, layout, name, record.line)
            group = _group(self.reader, values, layout.group, name, record.line)
            yield Document(texts, labels, name, record.line, record.text, record.before, group)

    def _labels(self, values: Any, layout: DocumentLayout, name: str, line: int) -> tuple[str, ...]:
        if layout.labels is None:
            return ()
        try:
            labels = tuple(_each_label(self.reader.at(values, layout.labels), layout.separator))
        except TypeError:
            expected = "expected a string, a number, true, false or a list of them"
            raise DataError(f"{layout.labels}: {expected}", name, line) from None
        for label in labels:
            check_characters(label, layout.labels, name, line)
        return labels

    def write(
        self, document: Document, layout: DocumentLayout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """Values are replaced in their place, or added at the end as "label" and "probability"."""
        record = Record(document.line, document.source, document.before)
        answer = Answer(layout.labels, labels, probabilities, layout.separator, layout.header)
        return self.reader.written(record, document.labels, answer)


def _each_label(value: Any, separator: str) -> Iterator[str]:
    """Each label once. Raises TypeError for a value that holds no labels."""
    match value:
        case None:
            return
        case bool():
            yield "true" if value else "false"
        case str():
            yield from split_labels(value, separator)
        case list():
            yield from dict.fromkeys(label for part in value for label in _each_label(part, ""))
        case _:
            raise TypeError


class RecordPairs(PairFormat):
    """A target is a text, or in JSON a list of references."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.name = reader.flat(), reader.name

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        rows, has_keys = self.reader.first(lines), self.reader.has_keys
        header = not has_keys and (choice.has_names or is_header(rows))
        columns = first_columns(rows, lines.name, header=header, has_keys=has_keys)
        if choice.is_labeled and len(columns) < 2 and not has_keys:
            separator = "tab" if self.name in TABBED else "delimiter"
            raise DataError(f"{columns_counted(1)}; expected a source, a {separator} and a target", lines.name, 1)
        if not choice.is_labeled and not header and not has_keys and len(columns) == len(choice.sources):
            choice = replace(choice, sources=tuple(str(column.number) for column in columns))
        group, others = group_and_others(columns, choice.group, lines.name)
        sides = self.sides(others, choice, lines.name)
        sources, targets = (distinct_columns(side, columns, choice.names, lines.name) for side in sides)
        return PairLayout(self.name, sources, targets, header, group=group)

    def sides(self, columns: Sequence[Column], choice: PairChoice, file: str) -> tuple[Columns, Columns]:
        """The columns of the sources, and of the targets (none unless labeled). Raises DataError without such."""
        sources = tuple(named_column(columns, name, file) for name in choice.sources)
        targets: Columns = ()
        if choice.is_labeled:
            targets = tuple(column for name in choice.targets for column in _target_columns(columns, name, file))
        if twice := next((column for column in sources if column in targets), None):
            raise DataError(f"{twice} is named as source and as target", file)
        if sources and (targets or not choice.is_labeled):
            return sources, targets
        by_name = pairs_by_name(columns, is_labeled=choice.is_labeled)
        for sides in (*by_name, *_by_order(columns, sources, targets)):
            if (not sources or sources == sides[0]) and (not targets or targets == sides[1]):
                return sides[0], sides[1] if choice.is_labeled else ()
        raise _unclear(columns, needs_target=choice.is_labeled and not targets, needs_source=not sources, file=file)

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        name, text = lines.name, self.reader.text
        needed = (*layout.sources, *layout.targets, *([layout.group] if layout.group else []))
        for record, values in self.reader.read(lines, header=layout.header, needed=needed):
            line = record.line
            sources = tuple([text(values, column, name, line) for column in layout.sources])
            targets = self._targets(values, layout.targets, name, line) if is_labeled else ()
            yield Pair(sources, targets, name, line, _group(self.reader, values, layout.group, name, line))

    def _targets(self, values: Any, columns: Columns, name: str, line: int) -> tuple[str, ...]:
        """The texts of the columns. Of several, some records may have fewer."""
        texts: list[str] = []
        for column in columns:
            value = self.reader.at(values, column)
            if isinstance(value, list) and all(type(text) is str for text in value):
                for text in value:
                    check_characters(text, column, name, line)
                texts += value
            elif value is not None or len(columns) == 1:
                texts.append(self.reader.text(values, column, name, line))
        return tuple(texts)


def _target_columns(columns: Sequence[Column], name: str, file: str) -> Columns:
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


class Sigmorphon(RecordPairs):
    """Lemma, inflected form and features between tabs, as in SIGMORPHON 2017; without targets lemma and features."""

    def __init__(self) -> None:
        super().__init__(DIALECTS[0])
        self.name = "sigmorphon"

    def sides(self, columns: Sequence[Column], choice: PairChoice, file: str) -> tuple[Columns, Columns]:
        if not choice.names:
            has_forms = len(columns) > 2
            choice = replace(choice, sources=("1", "3" if has_forms else "2"), targets=("2",) if has_forms else ())
        return super().sides(columns, choice, file)


def _group(reader: Reader, values: Any, column: Column | None, name: str, line: int) -> str:
    """The group of a record; "" if no column of groups is read. Raises DataError for an empty one."""
    if column is None:
        return ""
    group = reader.text(values, column, name, line, numbers=True)
    if not group.strip():
        raise DataError(f"no group in {column}", name, line)
    return group
