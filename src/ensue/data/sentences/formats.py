"""The formats of labeled sentences by name, and running text with a sentence on each line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

from ensue.data.detection.format_table import KNOWN
from ensue.data.lines import Lines
from ensue.data.sentences.sentence import Format, Sentence, SourceLines, Surface, checked_label
from ensue.errors import DataError, nearest
from ensue.text.tokens import tokens


class PlainText(Format):
    """Every line is a sentence. A line without words is an empty sentence, so there is an answer for each line."""

    name = "text"
    default_words = ""
    default_column = "label"

    def read(self, lines: Lines) -> Iterator[Sentence]:
        for number, line in lines:
            words = tuple([token.text for token in tokens(_content(line), self.splitter)])
            yield Sentence(words, {}, number, SourceLines(lines.name, line))

    def write(self, sentence: Sentence, labels: Sequence[str], column: str | None = None) -> str:
        """`word<TAB>label` on a line for each word, and a blank line; the text itself has no place for labels."""
        checked = [checked_label(label, "\t\r\n", sentence) for label in labels]
        rows = [f"{word}\t{label}\n" for word, label in zip(sentence.words, checked, strict=True)]
        return "".join([*rows, "\n"])

    def write_columns(self, sentence: Sentence, rows: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
        """The word and its values, with tabs between them."""
        for row in rows:
            for value in row:
                checked_label(value, "\t\r\n", sentence)
        written = ["\t".join([word, *row]) + "\n" for word, row in zip(sentence.words, rows, strict=True)]
        return "".join([*written, "\n"])

    def missing_end(self, text: str) -> str:
        return ""  # what is written is not the file's own text

    def surface(self, sentence: Sentence) -> Surface:
        """The line, and the places of its words."""
        text = _content(sentence.source.text)
        return Surface(text, tuple([(token.start, token.end) for token in tokens(text, self.splitter)]))


def _content(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


FORMATS = {known.name: known.sentences for known in KNOWN if known.sentences}
"""For each name the class, as "module:Class"."""


def format_class(name: str) -> type[Format]:
    """The format of that name. Raises DataError, with all names, if there is none."""
    if name not in FORMATS:
        raise DataError(f'unknown format "{name}"; expected one of {", ".join(FORMATS)}{nearest(name, FORMATS)}')
    module, _, attribute = FORMATS[name].partition(":")
    return getattr(import_module(module), attribute)  # type: ignore[no-any-return]
