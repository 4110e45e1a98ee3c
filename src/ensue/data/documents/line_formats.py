"""A document in each line, without columns: the label is fastText's, the first word, the file's name, or missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ensue.data.detection.format_table import CLASS_FILES, class_of
from ensue.data.detection.signs import FASTTEXT_PREFIX
from ensue.data.documents.document import Document, DocumentFormat, Layout, shown_probabilities, split_labels
from ensue.data.lines import Lines
from ensue.data.records.record import records, without_end
from ensue.data.records.tables import one_field

_BLANKS = re.compile(r"[ \t\r\n]+")
"""The separator of a label and the text; other white space is a character of a label."""
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


class LineFormat(DocumentFormat):
    """A document in each line; lines without anything are skipped, unless they are documents if `empty`."""

    empty = False

    def read(self, lines: Lines, layout: Layout, *, is_labeled: bool) -> Iterator[Document]:
        for record in records(lines, lines.name, empty=self.empty):
            text, labels = self.parts(without_end(record.text)[0], lines.name)
            yield Document((text,), labels, lines.name, record.line, record.text, record.before)

    def parts(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        """The text and the labels of a line without its end, in the file `name`."""
        return body, ()

    def write(
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """The line with the labels and their probabilities before it, separated by tabs."""
        values = [",".join(labels), *([",".join(shown_probabilities(probabilities))] if probabilities else [])]
        return document.before + "\t".join([*map(one_field, values), document.source])


class FastText(LineFormat):
    """`__label__x __label__y text`; the labels may also stand behind the text. A line without any is unlabeled."""

    name = "fasttext"

    def parts(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        found = FastTextLine.of(body)
        return found.text, found.labels

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


class FirstWord(LineFormat):
    """`1 a stirring , funny ...`: the label, a blank or a tab, and the text."""

    name = "first-word"

    def parts(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        label, _, text = _parted(body)
        return text, split_labels(label, "")

    def write(
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """The format has no place for probabilities; blanks within a label become `_`."""
        body, end = without_end(document.source)
        _, blank, text = _parted(body)
        return f"{document.before}{','.join(map(_one_word, labels))}{blank or ' '}{text}{end}"


class ClassFiles(LineFormat):
    """A text in each line of a file that is named after their class. Empty lines are skipped."""

    name = CLASS_FILES

    def parts(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        return body, (class_of(name),)


class UnlabeledLines(LineFormat):
    """A text in each line, also in an empty one, without labels."""

    name = "plain"
    empty = True


def _parted(body: str) -> tuple[str, str, str]:
    """The first word of a line, the blank or tab behind it, and the text."""
    label = body[: min(len(part) for part in (body.split(" ", 1)[0], body.split("\t", 1)[0]))]
    return label, body[len(label) : len(label) + 1], body[len(label) + 1 :]


def _one_word(label: str) -> str:
    return _BLANKS.sub("_", label.strip())
