"""A document in each line, without columns: the label is fastText's, the first word, the file's name, or missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ensue.data.detection.format_names import CLASS_FILES, class_of
from ensue.data.detection.line_signs import FASTTEXT_PREFIX
from ensue.data.documents.document import Choice, Document, Layout
from ensue.data.documents.format import DocumentFormat, shown_probabilities, split_labels
from ensue.data.lines import Lines
from ensue.data.records import records, without_end
from ensue.data.tables import one_field

_BLANKS = re.compile(r"[ \t\r\n]+")
"""What parts a label from the text; other white space is a character of a label."""
_LEADING = re.compile(rf"[ \t]*(?:{FASTTEXT_PREFIX}[^ \t]+(?:[ \t]+|\Z))*")
_TRAILING = re.compile(rf"[ \t]*(?:[^ \t]+?{FASTTEXT_PREFIX[::-1]}(?:[ \t]+|\Z))+")  # read from the end of the line


class FastTextLine(NamedTuple):
    """A line in three parts: the text, and before and after it labels with the blanks around them."""

    leading: str
    text: str
    trailing: str

    @classmethod
    def of(cls, body: str) -> FastTextLine:
        """The parts of a line without its end."""
        start = match.end() if (match := _LEADING.match(body)) else 0
        behind = _TRAILING.match(body[start:][::-1]) if FASTTEXT_PREFIX in body[start:] else None
        stop = len(body) - behind.end() if behind else len(body)
        return cls(body[:start], body[start:stop], body[stop:])

    @property
    def labels(self) -> tuple[str, ...]:
        """The distinct labels in the order of the line, without their prefix."""
        marks = _BLANKS.split(f"{self.leading} {self.trailing}")
        return tuple(dict.fromkeys(mark.removeprefix(FASTTEXT_PREFIX) for mark in marks if mark))


class FastText(DocumentFormat):
    """`__label__x __label__y text`; the labels may also stand behind the text. A line without any is unlabeled."""

    def layout(self, lines: Lines, choice: Choice) -> Layout:
        return Layout("fasttext")

    def read(self, lines: Lines, layout: Layout, *, is_labeled: bool) -> Iterator[Document]:
        for record in records(lines, lines.name):
            parts = FastTextLine.of(without_end(record.text)[0])
            yield Document((parts.text,), parts.labels, lines.name, record.line, record.text, record.before)

    def write(
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """The format has no place for probabilities; blanks within a label become `_`."""
        body, end = without_end(document.source)
        parts = FastTextLine.of(body)
        marks = " ".join(FASTTEXT_PREFIX + _one_word(label) for label in labels)
        if parts.trailing.strip() and not parts.leading.strip():
            return f"{document.before}{parts.text} {marks}{end}"
        return f"{document.before}{marks} {parts.text}{end}"


class FirstWord(DocumentFormat):
    """`1 a stirring , funny ...`: the label, a blank or a tab, and the text."""

    def layout(self, lines: Lines, choice: Choice) -> Layout:
        return Layout("first-word")

    def read(self, lines: Lines, layout: Layout, *, is_labeled: bool) -> Iterator[Document]:
        for record in records(lines, lines.name):
            label, _, text = _parted(without_end(record.text)[0])
            yield Document((text,), split_labels(label, ""), lines.name, record.line, record.text, record.before)

    def write(
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """The format has no place for probabilities; blanks within a label become `_`."""
        body, end = without_end(document.source)
        _, blank, text = _parted(body)
        return f"{document.before}{','.join(map(_one_word, labels))}{blank or ' '}{text}{end}"


class ClassFiles(DocumentFormat):
    """A text in each line of a file that is named after their class. Empty lines are skipped."""

    def layout(self, lines: Lines, choice: Choice) -> Layout:
        return Layout(CLASS_FILES)

    def read(self, lines: Lines, layout: Layout, *, is_labeled: bool) -> Iterator[Document]:
        labels = (class_of(lines.name),)
        for record in records(lines, lines.name):
            yield Document((without_end(record.text)[0],), labels, lines.name, record.line, record.text, record.before)

    def write(
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """The line with the labels and their probabilities before it, separated by tabs."""
        return _line_behind_labels(document, labels, probabilities)


class UnlabeledLines(DocumentFormat):
    """A text in each line, also in an empty one, without labels. They are written before the text, with a tab."""

    def layout(self, lines: Lines, choice: Choice) -> Layout:
        return Layout("plain")

    def read(self, lines: Lines, layout: Layout, *, is_labeled: bool) -> Iterator[Document]:
        for record in records(lines, lines.name, empty=True):
            yield Document((without_end(record.text)[0],), (), lines.name, record.line, record.text)

    def write(
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        return _line_behind_labels(document, labels, probabilities)


def _line_behind_labels(document: Document, labels: Sequence[str], probabilities: Sequence[float]) -> str:
    values = [",".join(labels), *([",".join(shown_probabilities(probabilities))] if probabilities else [])]
    return document.before + "\t".join([*map(one_field, values), document.source])


def _parted(body: str) -> tuple[str, str, str]:
    """The first word of a line, the blank or tab behind it, and the text."""
    label = body[: min(len(part) for part in (body.split(" ", 1)[0], body.split("\t", 1)[0]))]
    return label, body[len(label) : len(label) + 1], body[len(label) + 1 :]


def _one_word(label: str) -> str:
    return _BLANKS.sub("_", label.strip())
