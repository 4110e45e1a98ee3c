"""Formats with an example on each line: labeled texts, pairs, plain lines; and a folder for each class."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ensue.data.decoding import checked_encoding, whole_text
from ensue.data.detection.format_table import CLASS_FILES, class_of
from ensue.data.detection.signs import CMUDICT_COMMENT, FASTTEXT_PREFIX, cmudict_entry, scan_sides
from ensue.data.examples.example import Document, Pair, split_labels
from ensue.data.examples.layout import DocumentFormat, DocumentLayout, PairChoice, PairFormat, PairLayout
from ensue.data.files import visible
from ensue.data.lines import Lines
from ensue.data.records.record import Column, columns_counted, records, without_end
from ensue.data.records.tables import one_field
from ensue.errors import DataError

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
        """The three parts of a line without its end."""
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
    """A document on each line. Empty lines are skipped, unless `empty`: then they are documents."""

    has_columns = False
    empty = False

    def read(self, lines: Lines, layout: DocumentLayout, *, is_labeled: bool) -> Iterator[Document]:
        for record in records(lines, lines.name, empty=self.empty):
            text, labels = self.parts(without_end(record.text)[0], lines.name)
            yield Document((text,), labels, lines.name, record.line, record.text, record.before)

    def parts(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        """The text and the labels of a line without its end, in the file `name`."""
        return body, ()

    def write(
        self, document: Document, layout: DocumentLayout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """The line with the labels and their probabilities before it, separated by tabs."""
        return f"{document.before}{written_values(labels, probabilities)}\t{document.source}"


class FastText(LineFormat):
    """`__label__x __label__y text`; the labels may also stand behind the text. A line without any is unlabeled."""

    name = "fasttext"

    def parts(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        line = FastTextLine.of(body)
        return line.text, line.labels

    def write(
        self, document: Document, layout: DocumentLayout, labels: Sequence[str], probabilities: Sequence[float] = ()
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
        self, document: Document, layout: DocumentLayout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """The format has no place for probabilities; blanks within a label become `_`."""
        body, end = without_end(document.source)
        _, blank, text = _parted(body)
        return f"{document.before}{','.join(map(_one_word, labels))}{blank or ' '}{text}{end}"


class ClassFiles(LineFormat):
    """A text on each line of a file that is named after their class. Empty lines are skipped."""

    name = CLASS_FILES

    def parts(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        return body, (class_of(name),)


class UnlabeledLines(LineFormat):
    """A text on each line, also on an empty one, without labels."""

    name = "plain"
    empty = True


def _parted(body: str) -> tuple[str, str, str]:
    """The first word of a line, the blank or tab behind it, and the text."""
    label = body[: min(len(part) for part in (body.split(" ", 1)[0], body.split("\t", 1)[0]))]
    return label, body[len(label) : len(label) + 1], body[len(label) + 1 :]


def _one_word(label: str) -> str:
    return _BLANKS.sub("_", label.strip())


def read_folders(root: Path, *, encoding: str = "utf-8") -> Iterator[Document]:
    """The texts of `root/<class>/<file>`, class after class, each sorted by name; `.xz` and `.gz` are decompressed.

    Files in `root` itself are skipped. Raises DataError for a class without files, a folder within a class, and a text
    that cannot be read.
    """
    encoding = checked_encoding(encoding)
    folders = [path for path in visible(root) if path.is_dir()]
    if not folders:
        raise DataError("no folders; expected one for each class", root)
    for folder in folders:
        files = visible(folder)
        if not files:
            raise DataError(f'no file of the class "{folder.name}"', folder)
        for path in files:
            if path.is_dir():
                raise DataError("a folder within a class; expected files", path)
            yield Document((whole_text(path, encoding),), (folder.name,), str(path), 1)


def written_values(labels: Sequence[str], probabilities: Sequence[float]) -> str:
    """The labels and their probabilities (four digits), with a tab between them; without probabilities the labels."""
    shown = [",".join(f"{probability:.4f}" for probability in probabilities)] if probabilities else []
    return "\t".join([one_field(",".join(labels)), *shown])


class LinePairs(PairFormat):
    """A pair on each line. `about` says where source and target stand, `expected` what a line should be."""

    has_columns = False
    about: str
    expected: str
    comment = "\0"
    """How a line begins that is no pair."""

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        return PairLayout(self.name, about=self.about)

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        for record in records(lines, lines.name):
            body, _ = without_end(record.text)
            if body.startswith(self.comment):
                continue
            sides = self.sides(body)
            if sides is None:
                raise DataError(f"expected {self.expected}", lines.name, record.line)
            yield Pair(sides[:1], sides[1:] if is_labeled else (), lines.name, record.line)

    @abstractmethod
    def sides(self, body: str) -> tuple[str, str] | None:
        """Source and target of a line; None for another line."""


class Scan(LinePairs):
    """`IN: jump twice OUT: I_JUMP I_JUMP`."""

    name = "scan"
    about = "source: after IN:, target: after OUT:"
    expected = '"IN: source OUT: target"'

    def sides(self, body: str) -> tuple[str, str] | None:
        return scan_sides(body)


class Cmudict(LinePairs):
    """`WORD 1 PH ON EMES`, `WORD  PH ON EMES` and `WORD(1)  PH ON EMES`. Each pronunciation is a pair.

    Lines that begin with `;;;` are comments, and so is the rest of a line from ` #`.
    """

    name = "cmudict"
    about = "source: the word, target: its phonemes"
    expected = 'a word and its phonemes, such as "WORD  W ER1 D"'
    comment = CMUDICT_COMMENT

    def sides(self, body: str) -> tuple[str, str] | None:
        return cmudict_entry(body)


class SourceLines(PairFormat):
    """A source on each line, also on an empty one. Several sources are separated by tabs, in the order of the run."""

    name = "plain"

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        if choice.is_labeled:
            raise DataError("plain lines have no targets; expected pairs", lines.name)
        number = len(choice.sources)
        return PairLayout("plain", tuple(Column(place) for place in range(1, number + 1)) if number > 1 else ())

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        number = max(1, len(layout.sources))
        for record in records(lines, lines.name, empty=True):
            body, _ = without_end(record.text)
            fields = [body] if number == 1 else body.split("\t")
            if not body.strip():
                fields = [""] * number
            if len(fields) != number:
                raise DataError(f"{columns_counted(len(fields))}; expected {number} sources", lines.name, record.line)
            yield Pair(tuple(fields), (), lines.name, record.line)


LINES_OF_TEXTS = (FastText(), FirstWord(), ClassFiles(), UnlabeledLines())
LINES_OF_PAIRS = (Scan(), Cmudict(), SourceLines())
