"""Statistics of data: lengths, repeated texts, values of columns, and the summaries that contain them."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from ensue.data.detection.kind import DetectedFormat
from ensue.errors import DataError, OverlapError

MAX_VALUES = 1000
"""The maximum number of distinct values that are counted for a column. Columns of labels have fewer values."""
MAX_TEXTS = 1 << 18
"""The maximum number of distinct texts whose hashes are stored."""


class FileLine(NamedTuple):
    """A line of a file, shown as `path:line`."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class Occurrences:
    """A number of occurrences, and the line of the first occurrence."""

    def __init__(self) -> None:
        self.count, self.first = 0, FileLine("", 0)

    def add(self, path: str, line: int, count: int = 1) -> None:
        """Add occurrences in a line."""
        self.count += count
        self.first = self.first if self.first.path else FileLine(path, line)

    def __str__(self) -> str:
        return f"{self.count:,}, the first at {self.first}"


class Lengths:
    """A histogram of lengths, with the length and the line of the first longest text."""

    def __init__(self, lengths: Iterable[int] = ()) -> None:
        self.counts = Counter(lengths)
        self.longest = 0, FileLine("", 0)

    def add(self, length: int, path: str = "", line: int = 0) -> None:
        """Add a text of this length."""
        self.counts[length] += 1
        if length > self.longest[0]:
            self.longest = length, FileLine(path, line)

    @property
    def mean(self) -> float:
        """The mean length; 0 without texts."""
        return sum(length * count for length, count in self.counts.items()) / max(1, len(self))

    def quantile(self, share: float) -> int:
        """Return the quantile by nearest rank, such as the lower median for 0.5; 0 without texts."""
        lengths = sorted(self.counts)
        if not lengths:
            return 0
        ranks = list(accumulate(self.counts[length] for length in lengths))
        return lengths[bisect_right(ranks, max(1, math.ceil(share * ranks[-1])) - 1)]

    def __len__(self) -> int:
        return self.counts.total()


class Repeats:
    """The number of texts that repeat an earlier text, and the number of repeated texts with other labels."""

    def __init__(self) -> None:
        self.num_repeats, self.with_other_labels = 0, Occurrences()
        self._labels: dict[int, int] = {}
        """The hash of the labels for the hash of each text."""

    def feed(self, text: Hashable, labels: Hashable, path: str = "", line: int = 0) -> None:
        """Add a text with its labels."""
        key, value = hash(text), hash(labels)
        if key in self._labels:
            self.num_repeats += 1
            if self._labels[key] != value:
                self.with_other_labels.add(path, line)
        elif len(self._labels) < MAX_TEXTS:
            self._labels[key] = value

    @property
    def is_partial(self) -> bool:
        """Whether `MAX_TEXTS` hashes are stored, so that `num_repeats` may be too low."""
        return len(self._labels) == MAX_TEXTS


class ColumnValues:
    """The frequency of each value of a column, counted up to `MAX_VALUES` distinct values."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}

    def feed(self, columns: Mapping[str, Sequence[str]], names: Iterable[str]) -> None:
        """Add the values in the columns `names` of a sentence or text."""
        for name in names:
            counts = self.counts.setdefault(name, Counter())
            if len(counts) <= MAX_VALUES:
                counts.update(columns[name])

    def add_keys(self, name: str) -> None:
        """Add a column `name.key` for each key in a column of features such as `Case=Nom|Number=Sing`."""
        for value, count in self.counts.get(name, Counter()).items():
            for entry in value.split("|"):
                key, equals, content = entry.partition("=")
                if equals:
                    self.counts.setdefault(f"{name}.{key}", Counter())[content] += count


@dataclass
class Summary:
    """The statistics of data of any kind."""

    detected: DetectedFormat
    location: str
    encoding: str
    num_files: int = 1
    size: int = 0
    """The number of sentences, texts, pairs or series; 0 for running text."""
    words: Counter[str] = field(default_factory=Counter)
    num_characters: int = 0
    characters: set[str] = field(default_factory=set)
    """The distinct characters of plain text, or of the words of other data."""
    error: DataError | None = None
    """The first error, at which reading ended."""
    incomplete: str = ""
    """The number of incomplete rows and the line of the first such row; "" without incomplete rows."""
    null_texts: Occurrences = field(default_factory=Occurrences)
    """Texts that stand for a missing value, such as "nan"."""


@dataclass
class LabeledSummary(Summary):
    """The statistics of sentences or texts."""

    is_labeled: bool = True
    """Whether the data have labels."""
    labels: Counter[str] = field(default_factory=Counter)
    lengths: list[Lengths] = field(default_factory=list)
    """The lengths in words; for pairs of texts, a histogram of the first texts and one of the second texts."""
    empty: Occurrences = field(default_factory=Occurrences)
    first_lines: dict[str, FileLine] = field(default_factory=dict)
    """The line where each label occurs first."""
    repeats: Repeats = field(default_factory=Repeats)
    columns: ColumnValues = field(default_factory=ColumnValues)
    """The columns other than words, texts and labels."""

    def add_words(self, words: Sequence[Sequence[str]], num_characters: int, path: str, line: int) -> None:
        """Add the words of a sentence or a text, or the words of both texts of a pair."""
        self.lengths = self.lengths or [Lengths() for _ in words]
        for lengths, text in zip(self.lengths, words, strict=True):
            lengths.add(len(text), path, line)
            self.words.update(text)
        self.num_characters += num_characters

    def add_labels(self, labels: Iterable[str], path: str, line: int) -> None:
        """Add labels, and store the line of each new label."""
        for label in labels:
            self.labels[label] += 1
            self.first_lines.setdefault(label, FileLine(path, line))


def fill(summary: Summary, source: Any, feed: Callable[[Any], object], noun: str) -> None:
    """Call `feed` with each item of a source, and set `error` and `incomplete` of the summary.

    `error` is the first DataError, or an error if the source has no items (`noun`). `incomplete` counts skipped rows.
    """
    try:
        for item in source:
            feed(item)
        skipped = getattr(source, "skipped", None)
        if skipped and skipped.first:
            summary.incomplete = f"{skipped}, the first at {skipped.first.removesuffix(': ')}"
        if not summary.size:
            raise DataError(summary.incomplete or f"no {noun}s", summary.location)
    except OverlapError:
        raise
    except DataError as error:
        summary.error = summary.error or error
