"""The numbers of data, which the surveys fill in and the console shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ensue.data.detection.kind import Taken
from ensue.data.documents import Layout
from ensue.data.pairs import PairLayout
from ensue.data.survey.counts import ColumnValues, FileLine, Lengths, Repeats
from ensue.data.survey.frame_ranges import Ranges
from ensue.data.survey.pair_counts import Balance, Overlap, Side
from ensue.errors import DataError
from ensue.text.schemes import Scheme


@dataclass
class Summary:
    """The numbers of any kind of data. `error` is the first wrong line, where reading ended, or a general mistake."""

    taken: Taken
    location: str
    encoding: str
    num_files: int = 1
    words: Counter[str] = field(default_factory=Counter)
    num_characters: int = 0
    characters: set[str] = field(default_factory=set)
    """The distinct characters: of plain text all, of other data those of the words."""
    error: DataError | None = None


@dataclass
class LabeledSummary(Summary):
    """`size` sentences or texts with `labels`; if not `is_labeled`, the data have no place for them."""

    size: int = 0
    is_labeled: bool = True
    labels: Counter[str] = field(default_factory=Counter)
    lengths: list[Lengths] = field(default_factory=list)
    """In words; for pairs, of the first and of the second texts."""
    num_empty: int = 0
    first_empty: FileLine | None = None
    repeats: Repeats = field(default_factory=Repeats)
    columns: ColumnValues = field(default_factory=ColumnValues)
    """The columns beside words or texts and labels."""

    def add_words(self, words: Sequence[Sequence[str]], num_characters: int) -> None:
        """Counts the words of a sentence, of a text, or of the two of a pair."""
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
    """The number of sentences that break the scheme, and the place and kind of the first mistake."""

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


class OddPair(NamedTuple):
    """A pair with odd lengths, in characters."""

    place: FileLine
    source: int
    target: int

    def __str__(self) -> str:
        return f"{self.place} ({self.source:,} and {self.target:,})"


@dataclass
class PairSummary(Summary):
    """`size` pairs. `odd` has the first of the `num_odd` that look misaligned. In a copy the target is the source.

    `references` are the numbers of targets of a pair. `overlap` is None if there is no test.
    """

    layout: PairLayout = field(default_factory=lambda: PairLayout(""))
    size: int = 0
    source: Side = field(default_factory=Side)
    target: Side = field(default_factory=Side)
    balance: Balance = field(default_factory=Balance)
    references: Lengths = field(default_factory=Lengths)
    repeats: Repeats = field(default_factory=Repeats)
    """Repeated sources; other labels are other targets."""
    num_copies: int = 0
    first_copy: FileLine | None = None
    num_odd: int = 0
    odd: list[OddPair] = field(default_factory=list)
    overlap: Overlap | None = None


@dataclass
class FrameSummary(Summary):
    """`size` series of frames. `labels` count series, `frame_labels` frames, if a label stands at each."""

    kinds: Counter[str] = field(default_factory=Counter)
    """How many files hold what: sound, npy, table, ..."""
    size: int = 0
    lengths: Lengths = field(default_factory=Lengths)
    """In frames."""
    labels: Counter[str] = field(default_factory=Counter)
    frame_labels: Counter[str] = field(default_factory=Counter)
    per_frame: bool = False
    """Whether frames of one series have different labels."""
    num_unlabeled: int = 0
    rate: float = 0.0
    """Frames in a second, or samples of sounds; 0 if nobody knows it."""
    columns: tuple[str, ...] = ()
    ranges: Ranges | None = None
    num_mixed: int = 0
    """Recordings of several channels."""


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
