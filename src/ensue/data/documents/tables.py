"""Tables: a document in each row, with columns for its label and its texts, which `table_columns` finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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
from ensue.data.records import without_end
from ensue.data.tables import Dialect


class TableFormat(DocumentFormat):
    """Rows of fields. Every row must have as many as the first."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def layout(self, lines: Lines, choice: Choice) -> Layout:
        rows = self.dialect.first_values(lines)
        header, labels, texts, joined, group = find_columns(rows, choice, lines.name)
        return Layout(self.dialect.name, texts, labels, header, choice.separator, joined, group)

    def read(self, lines: Lines, layout: Layout, *, is_labeled: bool) -> Iterator[Document]:
        value = self.dialect.value
        places = [column.number - 1 for column in layout.texts]
        needed = (*layout.texts, *(column for column in (layout.labels, layout.group) if column))
        for record, fields in self.dialect.body(lines, has_header=layout.header, needed=needed):
            texts = tuple(value(fields[place]) for place in places)
            if layout.joined:
                texts = joined_text(texts)
            label = value(fields[layout.labels.number - 1]) if layout.labels else ""
            labels = split_labels(label, layout.separator)
            group = value(fields[layout.group.number - 1]) if layout.group else ""
            yield Document(texts, labels, lines.name, record.line, record.text, record.before, group)

    def write(
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """A label column that the file lacks, and one of the probabilities, are added at the end."""
        separator, value = layout.separator or ",", self.dialect.value
        label = self.dialect.field(separator.join(labels))
        added = {PROBABILITY: separator.join(shown_probabilities(probabilities))} if probabilities else {}
        fields = next(iter(self.dialect.rows(Lines([document.source], document.path), document.path))).fields
        if layout.labels is None:
            added = {LABEL: label, **added}
        elif split_labels(value(fields[place := layout.labels.number - 1]), layout.separator) != tuple(labels):
            fields[place] = label
        _, end = without_end(document.source)
        before = self._extended(document.before, added) if layout.header else document.before
        return before + self.dialect.delimiter.join([*fields, *added.values()]) + end

    def _extended(self, before: str, names: Iterable[str]) -> str:
        """The header, if it is there, with these names at its end."""
        header = before.rstrip(" \r\n")
        return self.dialect.delimiter.join([header, *names]) + before[len(header) :] if header else before
