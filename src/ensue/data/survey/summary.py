"""What is known of data when they are read: the values that `summary` fills in and the console shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ensue.data.detection.kind import Taken
from ensue.data.documents import Layout
from ensue.data.survey.counts import ColumnValues, Lengths, Repeats
from ensue.errors import DataError
from ensue.text.schemes import Scheme


class FileLine(NamedTuple):
    """A line of a file."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass
class Summary:
    """What every kind of data has. `error`: the first wrong line, where reading ended, or what is wrong as a whole."""

    taken: Taken
    location: str
    encoding: str
    num_files: int = 1
    words: Counter[str] = field(default_factory=Counter)
    num_characters: int = 0
    characters: set[str] = field(default_factory=set)
    """The distinct ones: of plain text all, of other data those of the words."""
    error: DataError | None = None


@dataclass
class LabeledSummary(Summary):
    """`size` sentences or texts with `labels`; if not `is_labeled`, the data have no place for them."""

    size: int = 0
    is_labeled: bool = True
    labels: Counter[str] = field(default_factory=Counter)
    lengths: list[Lengths] = field(default_factory=list)
    """In words; of a pair, those of both."""
    num_empty: int = 0
    first_empty: FileLine | None = None
    repeats: Repeats = field(default_factory=Repeats)
    columns: ColumnValues = field(default_factory=ColumnValues)
    """What stands beside words or texts and labels."""

    def add_words(self, words: Sequence[Sequence[str]], num_characters: int) -> None:
        """One sentence, or one text or a pair of them."""
        self.lengths = self.lengths or [Lengths() for _ in words]
        for lengths, part in zip(self.lengths, words, strict=True):
            lengths.add(len(part))
            self.words.update(part)
        self.num_characters += num_characters

    def add_empty(self, path: str, line: int) -> None:
        """Counts an empty sentence or text, and keeps the place of the first one."""
        self.num_empty += 1
        self.first_empty = self.first_empty or FileLine(path, line)


class Slips(NamedTuple):
    """How many sentences break the scheme, where the first one does, and how."""

    sentences: int
    first: FileLine
    reason: str


@dataclass
class SentenceSummary(LabeledSummary):
    """`words_column` and `labels_column` (empty without labels) as the format names them; `width`: how many columns."""

    words_column: str = ""
    labels_column: str = ""
    width: int = 0
    has_tabs: bool = False
    num_documents: int = 0
    scheme: Scheme | None = None
    is_mixed: bool = False
    """Whether the labels follow no one scheme; then `scheme` is None, as it is for plain labels."""
    slips: Slips | None = None
    span_lengths: dict[str, Lengths] = field(default_factory=dict)
    """By class, in words; empty where the labels have no scheme."""


@dataclass
class DocumentSummary(LabeledSummary):
    """`columns` are those of the first rows, all that a table or JSON has."""

    layout: Layout = field(default_factory=lambda: Layout(""))
    labels_in_a_text: Lengths = field(default_factory=Lengths)


@dataclass
class PlainSummary(Summary):
    """`line_lengths` in characters, without line ends."""

    line_lengths: Lengths = field(default_factory=Lengths)
    longest: int = 0
    longest_line: FileLine | None = None
    num_nul: int = 0
    first_nul: FileLine | None = None

    def add_line(self, length: int, path: Path, line: int) -> None:
        """Counts a line of this many characters."""
        self.line_lengths.add(length)
        if length > self.longest:
            self.longest, self.longest_line = length, FileLine(str(path), line)
