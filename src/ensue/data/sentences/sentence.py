"""A labeled sentence, sentences that are read together, and the interface of their formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from ensue.data.lines import Lines, is_blank
from ensue.errors import DataError, nearest
from ensue.text.schemes import Scheme, Span


@dataclass(frozen=True, slots=True)
class SourceLines:
    """The source of a sentence: the name of its file for messages, and its own lines with the text around them.

    The texts of a file's sentences, joined, are the file. A format keeps here what else it needs to write.
    """

    name: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, and by name the other columns of a file.

    `columns` has a tuple as long as `words` for each name; it is a view of the source if that is smaller. `line` is the
    line of the first word, from 1. `document` is the number of the sentence's document in its file, from 0; None in
    formats without documents. `misaligned` has for a column the spans that begin or end inside of a word, as its labels
    show them (`json_sentences.py`).
    """

    words: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    line: int = 0
    source: SourceLines = SourceLines()
    document: int | None = None
    misaligned: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)

    def column(self, name: str) -> tuple[str, ...]:
        """The column `name`. Raises DataError (file:line), with all names, if it is missing."""
        try:
            return self.columns[name]
        except KeyError:
            raise self.error(missing_column(name, list(self.columns))) from None

    def error(self, message: str) -> DataError:
        """A DataError with the sentence's place in front."""
        return DataError(message, self.source.name or None, self.line or None)


class Surface(NamedTuple):
    """A text, and for each word of a sentence its place in it: start and end in code points."""

    text: str
    offsets: tuple[tuple[int, int], ...]


class Format(ABC):
    """A format of sentences in a file. An instance holds its options and no state.

    `words` names the column with the words. For a file of running text, `splitter` (one of
    `ensue.text.tokens.SPLITTERS`) cuts it into words; for one with spans of text, `scheme` is that of the labels,
    and with `nested` spans may overlap.
    """

    name: ClassVar[str]
    default_words: ClassVar[str]
    default_column: ClassVar[str]
    """The column of the labels, for reading and writing, if the user names none."""
    has_keys: ClassVar[bool] = False
    """Whether columns are keys of an object."""
    names: ClassVar[tuple[str, ...]] = ()
    """The columns of every file; () if each file has its own."""

    def __init__(
        self, *, words: str | None = None, splitter: str = "simple", scheme: Scheme = "bio", nested: bool = False
    ) -> None:
        self.words = words or self.default_words
        self.splitter = splitter
        self.scheme, self.nested = scheme, nested

    @abstractmethod
    def read(self, lines: Lines) -> Iterator[Sentence]:
        """The sentences in order, in constant memory. Raises DataError (file:line)."""

    @abstractmethod
    def write(self, sentence: Sentence, labels: Sequence[str], column: str | None = None) -> str:
        """The source's text with a label for each word in `column`, and everything else as it was.

        The texts of all sentences, in order, are the file. Raises DataError for a label that the format cannot hold.
        """

    def corrected(self, sentence: Sentence, labels: Sequence[str], column: str | None = None) -> str:
        """`write` for labels that a person has set: a span keeps the borders that it has in the source."""
        return self.write(sentence, labels, column)

    def write_columns(self, sentence: Sentence, rows: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
        """The text as `write` gives it, with several columns, which have a value in the row of each word."""
        for place, column in enumerate(columns):
            text = self.write(sentence, [row[place] for row in rows], column)
            sentence = replace(sentence, source=replace(sentence.source, text=text))
        return sentence.source.text

    def labels(self, sentence: Sentence, column: str | None = None) -> tuple[str, ...]:
        """The labels in `column`. Raises DataError (file:line) if there is no such column."""
        return sentence.column(column or self.default_column)

    def shown_columns(self, names: Sequence[str]) -> tuple[str, str]:
        """The columns of words and of labels, if the user names none, in a sentence with columns of these names."""
        return self.words or "text", self.default_column

    def misaligned(self, sentence: Sentence, column: str | None = None) -> tuple[Span, ...]:
        """The spans of `labels` that begin or end inside of a word."""
        return ()

    def text_spans(self, sentence: Sentence, column: str | None = None) -> tuple[str, list[tuple[int, int]]]:
        """The text of a sentence and the places of its spans of characters, if the format has such."""
        return "", []

    def group(self, sentence: Sentence, column: str) -> str:
        """The group of a sentence: the value of its first word in a column, or "document" for its document. Raises
        DataError (file:line) if there is no such column.
        """
        if column == "document" and sentence.document is not None:
            return f"{sentence.source.name}:{sentence.document}"
        return sentence.column(column)[0]

    def missing_end(self, text: str) -> str:
        """The line ends that a file's last text needs before another one can follow: here those of a blank line."""
        if not text.endswith("\n"):
            return "\n\n"
        return "" if is_blank(text[text.rfind("\n", 0, -1) + 1 :]) else "\n"

    def surface(self, sentence: Sentence) -> Surface:
        """The sentence as running text; in formats without text, the words with blanks between them."""
        return joined(sentence.words)


def joined(words: Sequence[str], blanks: Sequence[bool] | None = None) -> Surface:
    """The words one after the other. `blanks` tells for each but the last whether a blank follows (default: yes)."""
    parts, offsets, start = [], [], 0
    for index, word in enumerate(words):
        offsets.append((start, start + len(word)))
        parts.append(word)
        if index + 1 < len(words) and (blanks is None or blanks[index]):
            parts.append(" ")
            start += 1
        start += len(word)
    return Surface("".join(parts), tuple(offsets))


def missing_column(name: str, known: Sequence[str]) -> str:
    """A message such as `no column "upso"; did you mean "upos"?`, or with all columns if no name is near."""
    if all(map(str.isdecimal, known)):
        return f'no column "{name}"; the file has columns 1 to {len(known)}'
    advice = nearest(name, known) or f"; expected one of {', '.join(known)}"
    return f'no column "{name}"{advice}'


def checked_label(label: str, forbidden: str, sentence: Sentence) -> str:
    """The label. Raises DataError if it is empty or has a character that would break the line."""
    found = next((character for character in label if character in forbidden), None)
    if not label or found:
        fault = f"has the character {found!r}" if found else "is empty"
        raise sentence.error(f"the label {label!r} cannot be written in this format: it {fault}")
    return label


def passages(sentences: Iterable[Sentence], most_words: int) -> Iterator[list[Sentence]]:
    """Consecutive sentences of a document while they have at most `most_words` words together.

    A longer sentence is alone, and so is a sentence of a file that has no documents. 0: every sentence is alone.
    """
    passage: list[Sentence] = []
    words = 0
    for sentence in sentences:
        size = max(1, len(sentence.words))  # so that a passage has an end if no sentence has words
        words += size
        if passage and not (words <= most_words and _follows(sentence, passage[-1])):
            yield passage
            passage, words = [], size
        passage.append(sentence)
    if passage:
        yield passage


def _follows(sentence: Sentence, before: Sentence) -> bool:
    """Whether both are of one document."""
    places = [(found.source.name, found.document) for found in (sentence, before)]
    return sentence.document is not None and places[0] == places[1]
