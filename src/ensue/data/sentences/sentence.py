"""A labeled sentence, and the interface of its formats. Each format has its own file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from ensue.data.lines import Lines, is_blank
from ensue.errors import DataError, nearest
from ensue.text.schemes import Scheme


@dataclass(frozen=True, slots=True)
class SourceLines:
    """Where a sentence comes from: what messages call its file, and its own lines with what stands around them.

    The texts of a file's sentences, joined, are the file; a format keeps here whatever else it needs to write.
    """

    name: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, and by name whatever else a file says of each of them.

    `columns` holds a tuple as long as `words` for each name; it is a view of the source where that is smaller.
    `line` is where the words begin, counted from 1; `document` counts from 0 the documents of a
    file in a format that can have several; None in the others.
    """

    words: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    line: int = 0
    source: SourceLines = SourceLines()
    document: int | None = None

    def column(self, name: str) -> tuple[str, ...]:
        """What `columns` has under `name`; DataError (file:line) with the names there are for one that is missing."""
        try:
            return self.columns[name]
        except KeyError:
            raise self.error(missing_column(name, list(self.columns))) from None

    def error(self, message: str) -> DataError:
        """A DataError with the sentence's place in front."""
        return DataError(message, self.source.name or None, self.line or None)


class Surface(NamedTuple):
    """A text, and for each word of a sentence where it stands there: start and end, counted in code points."""

    text: str
    offsets: tuple[tuple[int, int], ...]


class Format(ABC):
    """How sentences stand in a file. An instance holds its options and no state.

    `words` names the column with the words. Where a file has running text, `splitter` (one of
    `ensue.text.tokens.SPLITTERS`) says what its words are; where it has spans of text, `scheme` is that of the labels.
    """

    name: ClassVar[str]
    default_words: ClassVar[str]
    default_column: ClassVar[str]
    """Where labels are looked for, and written to, if nobody says where."""

    def __init__(self, *, words: str | None = None, splitter: str = "simple", scheme: Scheme = "bio") -> None:
        self.words = words or self.default_words
        self.splitter = splitter
        self.scheme = scheme

    @abstractmethod
    def read(self, lines: Lines) -> Iterator[Sentence]:
        """The sentences in their order, in memory that does not grow with them. DataError (file:line)."""

    @abstractmethod
    def write(self, sentence: Sentence, labels: Sequence[str], column: str | None = None) -> str:
        """The source's text with one label for each word in `column` and everything else as it was.

        The texts of all sentences, in their order, make the file. DataError for a label that the format cannot hold.
        """

    def labels(self, sentence: Sentence, column: str | None = None) -> tuple[str, ...]:
        """What stands in `column`; DataError (file:line) if there is no such column."""
        return sentence.column(column or self.default_column)

    def missing_end(self, text: str) -> str:
        """The line ends that the last text of a file lacks for another one to follow it: here those of a blank line."""
        if not text.endswith("\n"):
            return "\n\n"
        return "" if is_blank(text[text.rfind("\n", 0, -1) + 1 :]) else "\n"

    def surface(self, sentence: Sentence) -> Surface:
        """The sentence as running text; where a format does not say it, the words with a blank between them."""
        return joined(sentence.words)


def joined(words: Sequence[str], blanks: Sequence[bool] | None = None) -> Surface:
    """The words one behind the other; `blanks` says for each but the last whether a blank follows (by default: yes)."""
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
    """`no column "upso"; did you mean "upos"?`, or the columns that there are where none is near."""
    if all(map(str.isdecimal, known)):
        return f'no column "{name}"; the file has columns 1 to {len(known)}'
    advice = nearest(name, known) or f"; expected one of {', '.join(known)}"
    return f'no column "{name}"{advice}'


def checked_label(label: str, forbidden: str, sentence: Sentence) -> str:
    """The label; DataError if it is empty or has a character that would break the line."""
    found = next((character for character in label if character in forbidden), None)
    if not label or found:
        fault = f"has the character {found!r}" if found else "is empty"
        raise sentence.error(f"the label {label!r} cannot be written in this format: it {fault}")
    return label
