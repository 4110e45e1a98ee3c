"""A document of each record that has columns or keys, which `table_columns` finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ensue.data.documents.document import Choice, Document, DocumentFormat, Layout, joined_text, split_labels
from ensue.data.documents.table_columns import find_columns
from ensue.data.lines import Lines
from ensue.data.records.json_objects import check_characters
from ensue.data.records.reader import Answer, Reader
from ensue.data.records.record import Record
from ensue.errors import DataError


class RecordDocuments(DocumentFormat):
    """A label is a text; in JSON also a number or boolean, or a list of them."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.name = reader, reader.name

    def layout(self, lines: Lines, choice: Choice) -> Layout:
        found = find_columns(self.reader.first(lines), choice, lines.name, has_keys=self.reader.has_keys)
        return Layout(self.name, found.texts, found.labels, found.header, choice.separator, found.joined, found.group)

    def read(self, lines: Lines, layout: Layout, *, is_labeled: bool) -> Iterator[Document]:
        name, text = lines.name, self.reader.text
        needed = (*layout.texts, *(column for column in (layout.labels, layout.group) if column))
        for record, values in self.reader.read(lines, header=layout.header, needed=needed):
            texts = tuple([text(values, column, name, record.line) for column in layout.texts])
            if layout.joined:
                texts = joined_text(texts)
            labels = self._labels(values, layout, name, record.line)
            group = text(values, layout.group, name, record.line, numbers=True) if layout.group else ""
            yield Document(texts, labels, name, record.line, record.text, record.before, group)

    def _labels(self, values: Any, layout: Layout, name: str, line: int) -> tuple[str, ...]:
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
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """Values are replaced in their place, or added at the end as "label" and "probability"."""
        record = Record(document.line, document.source, document.before)
        answer = Answer(layout.labels, labels, probabilities, layout.separator, layout.header)
        return self.reader.written(record, document.labels, answer)


def _each_label(value: Any, separator: str) -> Iterator[str]:
    """Each label once. Raises TypeError for what is none."""
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
