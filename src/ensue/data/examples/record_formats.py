"""Formats of examples in records with columns or keys: labeled texts, and pairs.

The columns of sources and targets are determined by the first rule that applies:

1. The user chooses columns (`PairChoice`) by names in the header or numbers (from 1).
2. Columns have usual names, which are the names in the first matching line of `USUAL_NAMES`
   (`detection/pair_tables.py`), or two languages (`en`, `german`). Case and punctuation are ignored. Names of targets
   may be numbered: summary1 and summary2 are references.
3. The first column is the source, and the second is the target. If columns have names, there must be only two.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ensue.data.detection.format_table import TABBED_FORMATS
from ensue.data.detection.pair_tables import Columns, Sides, is_header, numbered_columns, pairs_by_name, text_columns
from ensue.data.examples import layout as layouts
from ensue.data.examples.document_columns import FLAGS, TEXT_NAMES, find_columns, is_header_of_sources
from ensue.data.examples.layout import BOOLEAN_VALUES, Document, Pair, split_labels
from ensue.data.lines import Lines
from ensue.data.records import record as records
from ensue.data.records.json_objects import check_characters
from ensue.data.records.quoting import parse_list
from ensue.data.records.record import Answer, Column, Reader
from ensue.data.records.tables import DIALECTS
from ensue.errors import DataError, quote
from ensue.parsing import to_json


class RecordDocuments(layouts.DocumentFormat):
    """A format of labeled texts in records. A label is a string. In JSON, it may be a number, a boolean or a list."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.name = reader, reader.name

    def layout(self, lines: Lines, choice: layouts.DocumentChoice) -> layouts.DocumentLayout:
        rows = self.reader.first_rows(lines)
        return find_columns(rows, choice, lines.name, format=self.name, has_keys=self.reader.has_keys)

    def read(self, lines: Lines, layout: layouts.DocumentLayout, *, is_labeled: bool) -> Iterator[Document]:
        name, reader = lines.name, self.reader.to_lenient() if layout.skips else self.reader
        needed = (*layout.texts, *layout.flags, *(column for column in (layout.labels, layout.group) if column))
        has_false = bool(layout.flags) and layout.labels is None and self._has_false(lines, layout)
        for record, values in reader.read(lines, header=layout.header, needed=needed):
            texts = tuple([reader.text(values, column, name, record.line) for column in layout.texts])
            if layout.joined:
                texts = (" ".join(text for text in texts if text),)
            labels = self._read_labels(values, layout, name, record.line)
            cells = zip(layout.flags, self._flag_values(values, layout), strict=True) if has_false else ()
            unlabeled = next((str(column) for column, cell in cells if not cell), "")
            is_complete = bool(labels or layout.flags) and not unlabeled and any(map(str.strip, texts))
            column = None if layout.skips and not is_complete else layout.group
            group = _read_group(self.reader, values, column, name, record.line)
            yield Document(texts, labels, name, record.line, record.text, record.before, group, unlabeled)

    def _has_false(self, lines: Lines, layout: layouts.DocumentLayout) -> bool:
        """Return whether false is written in the indicator columns of the first rows; then an empty cell is unknown."""
        rows = self.reader.first_rows(lines)
        columns = records.first_columns(rows, lines.name, header=layout.header, has_keys=self.reader.has_keys)
        cells = (cell for row in rows for column, cell in zip(columns, row, strict=False) if column in layout.flags)
        return any(cell and FLAGS.get(cell.strip().casefold()) is False for cell in cells)

    def _read_labels(self, values: Any, layout: layouts.DocumentLayout, name: str, line: int) -> tuple[str, ...]:
        if layout.flags:
            cells = dict(zip(layout.flags, map(str.casefold, self._flag_values(values, layout)), strict=True))
            if wrong := next((column for column, value in cells.items() if value not in FLAGS), None):
                actual = "" if layout.labels else f", found {quote(cells[wrong])}"  # a list may have another length
                raise DataError(f"{wrong}: expected 0 or 1{actual}", name, line)
            return tuple(label for label, value in zip(layout.flag_names, cells.values(), strict=True) if FLAGS[value])
        if layout.labels is None:
            return ()
        try:
            value = self.reader.at(values, layout.labels)
            labels = tuple(_iterate_labels(value, layout.separator))
        except TypeError:
            expected = f"expected a string, a number, true, false or a list of these, found {to_json(value):.60}"
            raise DataError(f"{layout.labels}: {expected}", name, line) from None
        for label in labels:
            check_characters(label, layout.labels, name, line)
        return labels

    def write(
        self, document: Document, layout: layouts.DocumentLayout, labels: Sequence[str],
        probabilities: Sequence[float] = (),
    ) -> str:  # fmt: skip
        """Return the record with other labels. New columns are named "label" and "probability"."""
        record = records.Record(document.line, document.source, document.before)
        if layout.flags:
            # 1 in the columns of the labels and 0 in other columns, written as in the record (such as yes and no)
            row = next(iter(self.reader.read(Lines([record.text], ""), header=False, needed=())))
            old, text = self._flag_values(row.values, layout), record.text
            empty = "" if document.unlabeled else None  # such a cell is filled in, unless an empty cell is false
            forms = next((forms for forms in BOOLEAN_VALUES if {*old} - {empty} <= {*forms}), BOOLEAN_VALUES[0])
            truths = [label in labels for label in layout.flag_names]
            new_values = [value if value != empty and FLAGS.get(value.casefold()) is truth else forms[truth]
                          for value, truth in zip(old, truths, strict=True)]  # fmt: skip
            if layout.labels is not None:
                return self.reader.write(record, old, Answer(layout.labels, new_values))
            for column, value, new in zip(layout.flags, old, new_values, strict=True):
                text = self.reader.write(record._replace(text=text, before=""), [value], Answer(column, [new]))
            return record.before + text
        answer = Answer(layout.labels, labels, probabilities, layout.separator, layout.header)
        return self.reader.write(record, document.labels, answer)

    def _flag_values(self, values: Any, layout: layouts.DocumentLayout) -> list[str]:
        cells: Any = (self.reader.at(values, column) for column in layout.flags)
        if layout.labels is not None:  # a list of 0 and 1
            cells = self.reader.at(values, layout.labels)
            cells = parse_list(cells) if isinstance(cells, str) else cells
            cells = cells if isinstance(cells, list) and len(cells) == len(layout.flags) else ["?"] * len(layout.flags)
        return [str(cell).lower() if isinstance(cell, bool) else "" if cell is None else str(cell).strip()
                for cell in cells]  # fmt: skip


def _iterate_labels(value: Any, separator: str) -> Iterator[str]:
    match value:
        case None:
            return
        case bool():
            yield "true" if value else "false"
        case str():
            yield from split_labels(value, separator)
        case list():
            yield from dict.fromkeys(label for item in value for label in _iterate_labels(item, ""))
        case _:
            raise TypeError


class RecordPairs(layouts.PairFormat):
    """A format of pairs in records. A target is a string; in JSON also a list of references."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.name = reader.to_flat(), reader.name

    def layout(self, lines: Lines, choice: layouts.PairChoice) -> layouts.PairLayout:
        rows, has_keys = self.reader.first_rows(lines), self.reader.has_keys
        is_named = is_header(rows) or (not choice.is_labeled and is_header_of_sources(rows))
        header = not has_keys and (choice.has_names or is_named)
        columns = records.first_columns(rows, lines.name, header=header, has_keys=has_keys)
        if choice.is_labeled and len(columns) < 2 and not has_keys:
            mark = "tab" if self.name in TABBED_FORMATS else "delimiter"
            raise DataError(f"1 column; expected a source, a {mark} and a target", lines.name, 1)
        if not choice.is_labeled and not choice.has_names and not has_keys and len(columns) == len(choice.sources):
            choice = replace(choice, sources=tuple(str(column.number) for column in columns))
        group, others = records.split_group(columns, choice.group, lines.name)
        if not header and not has_keys and len(indices := text_columns(rows)) == 2:
            others = [column for column in others if column.number - 1 in indices]
        sides = self.sides(others, choice, lines.name)
        sources, targets = (records.distinct_columns(side, columns, choice.names, lines.name) for side in sides)
        return layouts.PairLayout(self.name, sources, targets, header, group=group)

    def sides(self, columns: Sequence[Column], choice: layouts.PairChoice, file: str) -> Sides:
        """Return the columns of sources and, if labeled, of targets. Raises DataError if a column is missing."""
        sources = tuple(records.named_column(columns, name, file, "sources") for name in choice.sources)
        targets: Columns = ()
        if choice.is_labeled:
            targets = tuple(column for name in choice.targets for column in _target_columns(columns, name, file))
        if duplicate := next((column for column in sources if column in targets), None):
            raise DataError(f"{duplicate} is named as source and as target", file)
        if sources and (targets or not choice.is_labeled):
            return sources, targets
        by_name = pairs_by_name(columns, is_labeled=choice.is_labeled)
        others = _choose_by_order(columns, sources, targets) if choice.is_labeled else _choose_texts(columns)
        for sides in (*by_name, *others):
            if (not sources or sources == sides[0]) and (not targets or targets == sides[1]):
                return sides[0], sides[1] if choice.is_labeled else ()
        missing = ["source"] * (not sources) + ["target"] * (choice.is_labeled and not targets)
        raise _ambiguous_columns(columns, missing, file)

    def read(self, lines: Lines, layout: layouts.PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        name, reader = lines.name, self.reader.to_lenient() if layout.skips else self.reader
        needed = (*layout.sources, *layout.targets, *([layout.group] if layout.group else []))
        for record, values in reader.read(lines, header=layout.header, needed=needed):
            line = record.line
            sources = tuple([reader.text(values, column, name, line) for column in layout.sources])
            targets = self._read_targets(reader, values, layout.targets, name, line) if is_labeled else ()
            is_complete = any(map(str.strip, sources)) and any(map(str.strip, targets))
            column = layout.group if is_complete or not layout.skips else None
            yield Pair(sources, targets, name, line, _read_group(reader, values, column, name, line))

    def _read_targets(self, reader: Reader, values: Any, columns: Columns, name: str, line: int) -> tuple[str, ...]:
        texts: list[str] = []
        for column in columns:
            value = reader.at(values, column)
            if isinstance(value, list) and all(type(text) is str for text in value):
                for text in value:
                    check_characters(text, column, name, line)
                texts += value
            elif value is not None or len(columns) == 1:
                texts.append(reader.text(values, column, name, line))
        return tuple(texts)


def _target_columns(columns: Sequence[Column], name: str, file: str) -> Columns:
    is_there = any(name in (column.name, str(column.number)) for column in columns)
    return (not is_there and numbered_columns(columns, name)) or (records.named_column(columns, name, file, "targets"),)


def _choose_by_order(columns: Sequence[Column], sources: Columns, targets: Columns) -> Iterator[Sides]:
    unused = [column for column in columns if column not in sources and column not in targets]
    needed = (not sources) + (not targets)
    has_names = any(column.name for column in columns)
    if len(unused) >= needed and (len(unused) == needed or not has_names):
        yield sources or (unused[0],), targets or (unused[needed - 1],)


def _choose_texts(columns: Sequence[Column]) -> Iterator[Sides]:
    """Yield the source column of data without targets: the only column of texts, or the first unnamed column."""
    texts = [column for column in columns if records.simplify(column.name) in TEXT_NAMES]
    if len(columns) == 1 or not any(column.name for column in columns) or len(texts) == 1:
        yield tuple(texts or columns[:1]), ()


def _ambiguous_columns(columns: Sequence[Column], sides: Sequence[str], file: str) -> DataError:
    settings = "--set " + " and ".join(f"data.{side}s=..." for side in sides)
    options = " and ".join(f"--{side}s NAME" for side in sides)
    names = ", ".join(map(str, columns))
    problem = f"cannot tell which column is the {' and which the '.join(sides)}: there are {names}"
    return DataError(f"{problem}; use {settings}", file, options={settings: options})


class Sigmorphon(RecordPairs):
    """The format of SIGMORPHON 2017: lemma, inflected form and features between tabs. Forms are the targets."""

    def __init__(self) -> None:
        super().__init__(DIALECTS[0])
        self.name = "sigmorphon"

    def sides(self, columns: Sequence[Column], choice: layouts.PairChoice, file: str) -> Sides:
        if not choice.names:
            has_forms = len(columns) > 2
            choice = replace(choice, sources=("1", "3" if has_forms else "2"), targets=("2",) if has_forms else ())
        return super().sides(columns, choice, file)


def _read_group(reader: Reader, values: Any, column: Column | None, name: str, line: int) -> str:
    if column is None:
        return ""
    group = reader.text(values, column, name, line, numbers=True)
    if not group.strip():
        raise DataError(f"no group in {column}", name, line)
    return group
