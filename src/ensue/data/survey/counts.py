"""The numbers of data, which the counters of each kind fill in and the console shows."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, TypeVar

from ensue.data.detection.kind import Taken
from ensue.errors import DataError

Item = TypeVar("Item")
MOST_VALUES = 1000
"""A column with more distinct values is not counted on: it holds no labels."""
MOST_REMEMBERED = 1 << 18
"""The most distinct texts that are remembered, the first ones."""


class FileLine(NamedTuple):
    """A line of a file."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class Lengths:
    """How many texts have which length."""

    def __init__(self, lengths: Iterable[int] = ()) -> None:
        self.counts = Counter(lengths)

    def add(self, length: int) -> None:
        """Counts a text of this length."""
        self.counts[length] += 1

    @property
    def mean(self) -> float:
        """The mean length; 0 without texts."""
        return sum(length * count for length, count in self.counts.items()) / max(1, len(self))

    def quantile(self, share: float) -> int:
        """The smallest length that at least this share of the texts does not exceed (nearest rank); 0 for no texts.

        A share of 0 is the shortest, 1 the longest, 0.5 the (lower) median.
        """
        lengths = sorted(self.counts)
        if not lengths:
            return 0
        ranks = list(accumulate(self.counts[length] for length in lengths))
        return lengths[bisect_right(ranks, max(1, math.ceil(share * ranks[-1])) - 1)]

    def __len__(self) -> int:
        return self.counts.total()


class Repeats:
    """The number of texts that repeat an earlier one, and of those with other labels. Texts are kept as hashes."""

    def __init__(self) -> None:
        self.texts, self.with_other_labels = 0, 0
        self._labels: dict[int, int] = {}

    def feed(self, text: Hashable, labels: Hashable) -> None:
        """Counts a text with its labels."""
        key, value = hash(text), hash(labels)
        if key in self._labels:
            self.texts += 1
            self.with_other_labels += self._labels[key] != value
        elif len(self._labels) < MOST_REMEMBERED:
            self._labels[key] = value

    @property
    def is_partial(self) -> bool:
        """Whether there were more texts than are remembered, so that `texts` may be too low."""
        return len(self._labels) == MOST_REMEMBERED


class ColumnValues:
    """How often each value of a column occurs, until it has more than `MOST_VALUES` of them."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}

    def feed(self, columns: Mapping[str, Sequence[str]], names: Iterable[str]) -> None:
        """Counts the values of the columns `names` of a sentence or text."""
        for name in names:
            counts = self.counts.setdefault(name, Counter())
            if len(counts) <= MOST_VALUES:
                counts.update(columns[name])

    def add_keys(self, name: str) -> None:
        """`name.key` for each `key=value` in a column whose values hold several of them, with `|` between."""
        for value, count in self.counts.get(name, Counter()).items():
            for entry in value.split("|"):
                key, equals, content = entry.partition("=")
                if equals:
                    self.counts.setdefault(f"{name}.{key}", Counter())[content] += count


@dataclass
class Summary:
    """The numbers of any kind of data. `error` is the first wrong line, where reading ended, or a general mistake."""

    taken: Taken
    location: str
    encoding: str
    num_files: int = 1
    size: int = 0
    """Sentences, texts, pairs or series; of running text 0."""
    words: Counter[str] = field(default_factory=Counter)
    num_characters: int = 0
    characters: set[str] = field(default_factory=set)
    """The distinct characters: of plain text all, of other data those of the words."""
    error: DataError | None = None


@dataclass
class LabeledSummary(Summary):
    """`size` sentences or texts with `labels`; if not `is_labeled`, the data have no place for them."""

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


def fill(summary: Summary, items: Iterable[Item], feed: Callable[[Item], object], what: str) -> None:
    """Feeds all items, or those before the first wrong line, which is the summary's `error`; so is having no item."""
    try:
        for item in items:
            feed(item)
        if not summary.size:
            raise DataError(f"no {what} in it", summary.location)
    except DataError as error:
        summary.error = summary.error or error
