"""Tables: a document in each row, with columns for its label and its texts. Which ones, `table_columns` finds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from ensue.data.documents.document import Choice, Document, Layout
from ensue.data.documents.format import (
    LABEL,
    PROBABILITY,
    DocumentFormat,
    joined_text,
    shown_probabilities,
    split_labels,
)
from ensue.data.documents.table_columns import find_columns
from ensue.data.lines import Lines
from ensue.data.quoting import quoted, quoted_rows, unquoted
from ensue.data.records import SAMPLE_ROWS, Record, records, sample, without_end
from ensue.errors import DataError


class Row(NamedTuple):
    """A record and its fields, as they are written."""

    record: Record
    fields: list[str]


class TableFormat(DocumentFormat):
    """Rows of fields. Every row must have as many as the first."""

    name: str
    delimiter: str
    sample_lines = SAMPLE_ROWS

    @abstractmethod
    def rows(self, lines: Iterable[tuple[int, str]], name: str) -> Iterator[Row]:
        """The records with their fields; joined by the delimiter they are the record without its line end."""

    @abstractmethod
    def value(self, field: str) -> str:
        """What a field says."""

    @abstractmethod
    def field(self, value: str) -> str:
        """How that is written."""

    def layout(self, lines: Lines, choice: Choice) -> Layout:
        rows: list[list[str]] = []
        try:
            head = sample(lines, self.sample_lines)
            for row in islice(self.rows(head, lines.name), SAMPLE_ROWS):
                rows.append([self.value(field) for field in row.fields])
        except DataError:  # the sample may end inside quotes; reading says what is really wrong
            if not rows:
                raise
        header, labels, texts, joined = find_columns(rows, choice, lines.name)
        return Layout(self.name, texts, labels, header, choice.separator, joined)

    def read(self, lines: Lines, layout: Layout, *, is_labeled: bool) -> Iterator[Document]:
        rows = self.rows(lines, lines.name)
        first = next(rows, None)
        if first is None:
            return
        before = first.record.before + first.record.text if layout.header else ""
        places = [column.number - 1 for column in layout.texts]
        width = len(first.fields)
        needed = (*layout.texts, *([layout.labels] if layout.labels else []))
        if missing := next((column for column in needed if column.number > width), None):
            raise DataError(f"{_columns(width)}; expected {missing}", lines.name, first.record.line)
        for record, fields in rows if layout.header else chain([first], rows):
            if len(fields) != width:
                found = f"{_columns(len(fields))}; expected {width} as in line {first.record.line}"
                raise DataError(found, lines.name, record.line)
            texts = tuple(self.value(fields[place]) for place in places)
            if layout.joined:
                texts = joined_text(texts)
            label = self.value(fields[layout.labels.number - 1]) if layout.labels else ""
            labels = split_labels(label, layout.separator)
            yield Document(texts, labels, lines.name, record.line, record.text, before + record.before)
            before = ""

    def write(
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """A label column that the file lacks, and one of the probabilities, are added at the end."""
        separator = layout.separator or ","
        label = self.field(separator.join(labels))
        added = {PROBABILITY: separator.join(shown_probabilities(probabilities))} if probabilities else {}
        fields = next(iter(self.rows(Lines([document.source], document.path), document.path))).fields
        if layout.labels is None:
            added = {LABEL: label, **added}
        elif split_labels(self.value(fields[place := layout.labels.number - 1]), layout.separator) != tuple(labels):
            fields[place] = label
        _, end = without_end(document.source)
        before = self._extended(document.before, added) if layout.header else document.before
        return before + self.delimiter.join([*fields, *added.values()]) + end

    def _extended(self, before: str, names: Iterable[str]) -> str:
        """The header, if it is there, with these names at its end."""
        header = before.rstrip(" \r\n")
        return self.delimiter.join([header, *names]) + before[len(header) :] if header else before


class Tsv(TableFormat):
    """Tab-separated values. Quotes are characters like any other, so a field holds neither tab nor line break."""

    name = "tsv"
    delimiter = "\t"

    def rows(self, lines: Iterable[tuple[int, str]], name: str) -> Iterator[Row]:
        return (Row(record, without_end(record.text)[0].split("\t")) for record in records(lines, name))

    def value(self, field: str) -> str:
        return field

    def field(self, value: str) -> str:
        return " ".join(value.split())


class Csv(TableFormat):
    """Values separated by commas as RFC 4180 has them."""

    name = "csv"
    delimiter = ","
    sample_lines = 16 * SAMPLE_ROWS  # a record may have many

    def rows(self, lines: Iterable[tuple[int, str]], name: str) -> Iterator[Row]:
        return (
            Row(record, fields)
            for record, fields in quoted_rows(records(lines, name, empty=True), name, self.delimiter)
        )

    def value(self, field: str) -> str:
        return unquoted(field)

    def field(self, value: str) -> str:
        return quoted(value, self.delimiter)


class SemicolonCsv(Csv):
    """The same with semicolons, as spreadsheets write it where a comma is in every number."""

    name = "csv-semicolon"
    delimiter = ";"


def _columns(count: int) -> str:
    return f"{count} column" + ("s" if count != 1 else "")
