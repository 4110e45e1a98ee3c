"""JSON: an object for each document, with keys for its label and its texts, on lines or in one array."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ensue.data.documents.document import Choice, Document, Layout
from ensue.data.documents.format import LABEL, PROBABILITY, DocumentFormat, joined_text, split_labels
from ensue.data.documents.table_columns import find_keys
from ensue.data.json_members import members, with_values
from ensue.data.json_objects import check_characters, first_objects, json_object, text_under, value_under
from ensue.data.lines import Lines
from ensue.data.records import json_records
from ensue.errors import DataError

_EXAMPLE = '{"text": ..., "label": ...}'
_BARE = re.compile(r"true|false|-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", re.ASCII)


class JsonDocuments(DocumentFormat):
    """A JSON object in each line, or an array of objects. A label is a string, number or boolean, or a list of them."""

    def layout(self, lines: Lines, choice: Choice) -> Layout:
        names, objects = first_objects(lines, example=_EXAMPLE)
        rows = [[_shown(content.get(name)) for name in names] for content in objects]
        _, labels, texts, joined, group = find_keys(names, rows, choice, lines.name)
        return Layout("json", texts, labels, False, choice.separator, joined, group)

    def read(self, lines: Lines, layout: Layout, *, is_labeled: bool) -> Iterator[Document]:
        lines.split_array()
        for record in json_records(lines, is_array=lines.is_array):
            content = json_object(record, lines.name, example=_EXAMPLE)
            texts = tuple(text_under(content, column, lines.name, record.line) for column in layout.texts)
            if layout.joined:
                texts = joined_text(texts)
            labels = _labels(content, layout, lines.name, record.line) if layout.labels else ()
            group = value_under(content, layout.group, lines.name, record.line) if layout.group else ""
            yield Document(texts, labels, lines.name, record.line, record.text, record.before, group)

    def write(
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """Values are replaced in their place, or added at the end under "label" and "probability"."""
        name = layout.labels.name if layout.labels else LABEL
        present = members(document.source)
        old = document.source[slice(*present[name])] if name in present else ""
        new = {name: _written(labels, old, layout.separator)}
        if probabilities:
            values = [round(probability, 6) for probability in probabilities]
            new[PROBABILITY] = json.dumps(values[0] if len(values) == 1 else values)
        return document.before + with_values(document.source, new, ensure_ascii=False)


def _labels(content: dict[str, Any], layout: Layout, name: str, line: int) -> tuple[str, ...]:
    assert layout.labels is not None
    try:
        labels = tuple(_each_label(content.get(layout.labels.name), layout.separator))
    except TypeError:
        expected = "expected a string, a number, true, false or a list of them"
        raise DataError(f"{layout.labels}: {expected}", name, line) from None
    for label in labels:
        check_characters(label, layout.labels, name, line)
    return labels


def _each_label(value: Any, separator: str) -> Iterator[str]:
    """Each label once. TypeError if that is none."""
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


def _written(labels: Sequence[str], old: str, separator: str) -> str:
    """Labels as JSON: a list where there was one or where they are not one; bare where a number or boolean was."""
    if separator:
        labels = [separator.join(labels)]
    if len(labels) != 1 or old.startswith("["):
        return json.dumps(list(labels), ensure_ascii=False)
    is_bare = old[:1] not in ("", '"', "n") and _BARE.fullmatch(labels[0])
    return labels[0] if is_bare else json.dumps(labels[0], ensure_ascii=False)


def _shown(value: Any) -> str:
    """A value as a cell, where columns are told by what is in them."""
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, bool | list) else ""
