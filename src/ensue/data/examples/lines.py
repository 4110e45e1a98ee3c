"""Formats with an example on each line (labeled texts, pairs, plain lines), and folders of classes."""

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ensue.data.decoding import check_encoding, load_text
from ensue.data.detection.format_table import CLASS_FILES, class_of
from ensue.data.detection.signs import CMUDICT_COMMENT, FASTTEXT_PREFIX, cmudict_entry, scan_sides
from ensue.data.examples import layout as layouts
from ensue.data.examples.layout import Document, DocumentLayout, Pair, PairLayout, split_labels
from ensue.data.files import list_visible
from ensue.data.lines import Lines
from ensue.data.records.record import Column, records, split_line_end
from ensue.data.records.tables import to_field
from ensue.errors import DataError, pluralize

_BLANKS = re.compile(r"[ \t\r\n]+")
"""The separator of a label and the text. Other white space may occur in labels."""
_LEADING = re.compile(rf"[ \t]*(?:{FASTTEXT_PREFIX}[^ \t]+(?:[ \t]+|\Z))*")
_TRAILING = re.compile(rf"[ \t]*(?:[^ \t]+?{FASTTEXT_PREFIX[::-1]}(?:[ \t]+|\Z))+")  # matches a reversed line


class FastTextLine(NamedTuple):
    """The sections of a line: the leading labels, the text and the trailing labels, with the blanks around them."""

    leading: str
    text: str
    trailing: str

    @classmethod
    def of(cls, body: str) -> "FastTextLine":
        """Split a line, without its line end, into its three sections."""
        start = match.end() if (match := _LEADING.match(body)) else 0
        trailing = _TRAILING.match(body[start:][::-1]) if FASTTEXT_PREFIX in body[start:] else None
        stop = len(body) - trailing.end() if trailing else len(body)
        return cls(body[:start], body[start:stop], body[stop:])

    @property
    def labels(self) -> tuple[str, ...]:
        """The distinct labels in the order of the line, without their prefix."""
        marks = _BLANKS.split(f"{self.leading} {self.trailing}")
        return tuple(dict.fromkeys(mark.removeprefix(FASTTEXT_PREFIX) for mark in marks if mark))


class LineFormat(layouts.DocumentFormat):
    """A format with a document on each line. Empty lines are documents if `keeps_empty_lines`."""

    has_columns = False
    keeps_empty_lines = False

    def read(self, lines: Lines, layout: DocumentLayout, *, is_labeled: bool) -> Iterator[Document]:
        for record in records(lines, lines.name, empty=self.keeps_empty_lines):
            text, labels = self.parse(split_line_end(record.text)[0], lines.name)
            yield Document((text,), labels, lines.name, record.line, record.text, record.before)

    def parse(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        """Split a line of the file `name`, without its line end, into its text and its labels."""
        return body, ()

    def write(
        self, document: Document, layout: DocumentLayout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        body, end = split_line_end(document.source)
        return f"{document.before}{self.with_labels(body, labels, probabilities)}{end}"

    def with_labels(self, body: str, labels: Sequence[str], probabilities: Sequence[float]) -> str:
        """Return the line, preceded by the labels and their probabilities, separated by tabs."""
        return f"{label_fields(labels, probabilities)}\t{body}"


class FastText(LineFormat):
    """The format of fastText: `__label__x __label__y text`. Labels may also follow the text, or be absent."""

    name = "fasttext"

    def parse(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        line = FastTextLine.of(body)
        return line.text, line.labels

    def with_labels(self, body: str, labels: Sequence[str], probabilities: Sequence[float]) -> str:
        """Return the line with other labels. Blanks in a label become `_`; probabilities are not written."""
        line = FastTextLine.of(body)
        marks = " ".join(FASTTEXT_PREFIX + _join_words(label) for label in labels)
        if line.trailing.strip() and not line.leading.strip():
            return f"{line.text} {marks}"
        return f"{marks} {line.text}"


class FirstWord(LineFormat):
    """A format with the label, a blank or a tab, and the text, such as `1 a stirring , funny ...`."""

    name = "first-word"

    def parse(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        label, _, text = _split_label(body)
        return text, split_labels(label, "")

    def with_labels(self, body: str, labels: Sequence[str], probabilities: Sequence[float]) -> str:
        """Return the line with other labels. Blanks in a label become `_`; probabilities are not written."""
        _, blank, text = _split_label(body)
        return f"{','.join(map(_join_words, labels))}{blank or ' '}{text}"


class ClassFiles(LineFormat):
    """A format with a text on each line of a file whose name is the class. Empty lines are skipped."""

    name = CLASS_FILES

    def parse(self, body: str, name: str) -> tuple[str, tuple[str, ...]]:
        return body, (class_of(name),)


class UnlabeledLines(LineFormat):
    """A format with an unlabeled text on each line. An empty line is an empty text."""

    name = "plain"
    keeps_empty_lines = True


def _split_label(body: str) -> tuple[str, str, str]:
    """Split a line at its first blank or tab, and return the text before it, the separator, and the text after it."""
    label = body.partition(" ")[0].partition("\t")[0]
    return label, body[len(label) : len(label) + 1], body[len(label) + 1 :]


def _join_words(label: str) -> str:
    return _BLANKS.sub("_", label.strip())


def read_folders(root: Path, *, encoding: str = "utf-8") -> Iterator[Document]:
    """Yield the texts of the files `root/<class>/<file>`, sorted by class and name.

    `.xz` and `.gz` files are decompressed. Files in `root` itself are skipped. Raises DataError for a class without
    files, a folder within a class, and a text that cannot be read.
    """
    encoding = check_encoding(encoding)
    folders = [path for path in list_visible(root) if path.is_dir()]
    if not folders:
        raise DataError("no folders; expected one for each class", root)
    for folder in folders:
        files = list_visible(folder)
        if not files:
            raise DataError(f'no file of the class "{folder.name}"', folder)
        for path in files:
            if path.is_dir():
                raise DataError("a folder within a class; expected files", path)
            yield Document((load_text(path, encoding),), (folder.name,), str(path), 1)


def label_fields(labels: Sequence[str], probabilities: Sequence[float]) -> str:
    """Return the labels, and if there are probabilities, a tab and the probabilities with four decimals."""
    shown = [",".join(f"{probability:.4f}" for probability in probabilities)] if probabilities else []
    return "\t".join([to_field(",".join(labels)), *shown])


class LinePairs(layouts.PairFormat):
    """A format with a pair on each line."""

    has_columns = False
    about: str
    """The description of the places of source and target, for messages."""
    expected: str
    """The description of a valid line, for messages."""
    comment = "\0"
    """The beginning of comments, which are skipped. By default, no line is a comment."""

    def layout(self, lines: Lines, choice: layouts.PairChoice) -> PairLayout:
        return PairLayout(self.name, about=self.about)

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        for record in records(lines, lines.name):
            body, _ = split_line_end(record.text)
            if body.startswith(self.comment):
                continue
            sides = self.sides(body)
            if sides is None:
                raise DataError(f"expected {self.expected}", lines.name, record.line)
            yield Pair(sides[:1], sides[1:] if is_labeled else (), lines.name, record.line)

    @abstractmethod
    def sides(self, body: str) -> tuple[str, str] | None:
        """Return the source and the target of a line; None for an invalid line."""


class Scan(LinePairs):
    """The format of SCAN: `IN: jump twice OUT: I_JUMP I_JUMP`."""

    name = "scan"
    about = "source: after IN:, target: after OUT:"
    expected = '"IN: source OUT: target"'

    def sides(self, body: str) -> tuple[str, str] | None:
        return scan_sides(body)


class Cmudict(LinePairs):
    """The formats of CMUdict: `WORD 1 PH ON EMES`, `WORD  PH ON EMES` and `WORD(1)  PH ON EMES`.

    Each pronunciation is a pair. Lines that begin with `;;;` are comments, and so is the rest of a line after ` #`.
    """

    name = "cmudict"
    about = "source: the word, target: its phonemes"
    expected = 'a word and its phonemes, such as "WORD  W ER1 D"'
    comment = CMUDICT_COMMENT

    def sides(self, body: str) -> tuple[str, str] | None:
        return cmudict_entry(body)


class UnlabeledPairLines(layouts.PairFormat):
    """A format with a possibly empty source on each line. Several sources are separated by tabs."""

    name = "plain"

    def layout(self, lines: Lines, choice: layouts.PairChoice) -> PairLayout:
        if choice.is_labeled:
            raise DataError("plain lines have no targets; expected pairs", lines.name)
        number = len(choice.sources)
        return PairLayout("plain", tuple(map(Column, range(1, number + 1))) if number > 1 else ())

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        number = max(1, len(layout.sources))
        for record in records(lines, lines.name, empty=True):
            body, _ = split_line_end(record.text)
            fields = [body] if number == 1 else body.split("\t")
            if not body.strip():
                fields = [""] * number
            if len(fields) != number:
                problem = f"{pluralize(len(fields), 'column')}; expected {number} sources"
                raise DataError(problem, lines.name, record.line)
            yield Pair(tuple(fields), (), lines.name, record.line)


TEXT_LINE_FORMATS = (FastText(), FirstWord(), ClassFiles(), UnlabeledLines())
PAIR_LINE_FORMATS = (Scan(), Cmudict(), UnlabeledPairLines())
