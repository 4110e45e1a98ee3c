"""The numbers of pairs: both sides, ratio, copies, repetitions, overlap with a test, odd lengths."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from typing import NamedTuple

from ensue.data.detection.format_table import ALIGNED
from ensue.data.detection.kind import Taken
from ensue.data.examples import Pair, PairLayout, PairSource
from ensue.data.survey.counts import MOST_REMEMBERED, FileLine, Lengths, Repeats, Summary, fill
from ensue.errors import DataError
from ensue.text.scripts import count_without_blanks, is_unsplit

_ODD_SHOWN = 5
_STEPS = 32
"""Lengths are counted on a scale of logarithms, in so many steps for each doubling."""
_FEWEST = 20
_FAR = 6.0
_TIMES = 2.0
_STEADY = 4


@dataclass
class Side:
    """The sources of pairs, or their targets. `lengths` are in words, which are separated by white space."""

    words: Counter[str] = field(default_factory=Counter)
    lengths: Lengths = field(default_factory=Lengths)
    characters: Lengths = field(default_factory=Lengths)
    num_characters: int = 0
    _without_blanks: int = 0

    def feed(self, texts: Sequence[str]) -> None:
        """Counts the sources of a pair as one text, or a target."""
        words = [word for text in texts for word in text.split()]
        length = sum(map(len, texts))
        self.words.update(words)
        self.lengths.add(len(words))
        self.characters.add(length)
        self.num_characters += length
        self._without_blanks += sum(map(count_without_blanks, texts))

    @property
    def has_no_blanks(self) -> bool:
        """Whether the script has no blanks between words, and the text is not tokenized."""
        return is_unsplit(self._without_blanks, self.num_characters, self.words.total())


class Balance:
    """The lengths of sources s and targets t, in characters, and pairs that are odd among them.

    For c characters of the target to each of the source, (t - c s) / sqrt(t + c s) has about the same spread at all
    lengths (Gale & Church 1993). A pair is odd if it lies more than six deviations, estimated from the median of the
    absolute ones, from the median, and is at least twice as long or short as c says. No pair is odd
    where the ratios of most pairs differ more than fourfold, as those of summaries do.
    """

    def __init__(self) -> None:
        self.ratios = Lengths()
        """Target to source, in percent."""
        self._counts: Counter[tuple[int, int]] = Counter()
        self._sums = [0, 0]

    def feed(self, source: int, target: int) -> None:
        """Counts a pair by its lengths."""
        self.ratios.add(round(100 * target / max(1, source)))
        self._counts[_step(source), _step(target)] += 1
        self._sums[0] += source
        self._sums[1] += target

    def is_odd(self, source: int, target: int) -> bool:
        """Whether a pair of these lengths is odd. All pairs must be counted before."""
        low, high = self._bounds
        expected = self._ratio * source
        times = max(target, expected) / max(1.0, min(target, expected))
        return times >= _TIMES and not low <= self._distance(source, target) <= high

    @property
    def has_odd(self) -> bool:
        """Whether there may be odd ones."""
        return any(self.is_odd(round(_length(s)), round(_length(t))) for s, t in self._counts)

    @property
    def _ratio(self) -> float:
        return self._sums[1] / max(1, self._sums[0])

    def _distance(self, source: float, target: float) -> float:
        expected = self._ratio * source
        return (target - expected) / math.sqrt(max(1.0, target + expected))

    @cached_property
    def _bounds(self) -> tuple[float, float]:
        low, high = (self.ratios.quantile(share) for share in (0.05, 0.95))
        if len(self.ratios) < _FEWEST or high > _STEADY * low:
            return -math.inf, math.inf
        distances = [(self._distance(_length(s), _length(t)), count) for (s, t), count in self._counts.items()]
        middle = _median(distances)
        spread = 1.4826 * _median([(abs(distance - middle), count) for distance, count in distances])
        return middle - _FAR * max(spread, 0.5), middle + _FAR * max(spread, 0.5)


class Overlap:
    """The pairs of a test that are also in other data. It keeps hashes of the first `MOST_REMEMBERED`."""

    def __init__(self, location: str, test: Iterable[Pair]) -> None:
        self.location = location
        self._test = [
            (FileLine(pair.path, pair.line), hash(pair.sources), [*map(hash, pair.targets)])
            for pair in islice(test, MOST_REMEMBERED)
        ]
        self._sources = {source for _, source, _ in self._test}
        self._targets = {target for _, _, targets in self._test for target in targets}
        self._seen_sources: set[int] = set()
        self._seen_targets: set[int] = set()
        self._seen_pairs: set[tuple[int, int]] = set()

    def feed(self, pair: Pair) -> None:
        """Adds a pair of the other data."""
        source = hash(pair.sources)
        targets = self._targets & {*map(hash, pair.targets)}
        self._seen_targets |= targets
        if source in self._sources:
            self._seen_sources.add(source)
            self._seen_pairs.update((source, target) for target in targets)

    def __len__(self) -> int:
        return len(self._test)

    @property
    def sources(self) -> list[FileLine]:
        """The places of the test pairs whose source is in the data."""
        return [place for place, source, _ in self._test if source in self._seen_sources]

    @property
    def num_targets(self) -> int:
        """The number of test pairs of which a target is in the data."""
        return sum(not self._seen_targets.isdisjoint(targets) for _, _, targets in self._test)

    @property
    def num_pairs(self) -> int:
        """The number of test pairs whose source is in the data with one of its targets."""
        return sum(any((source, target) in self._seen_pairs for target in targets) for _, source, targets in self._test)


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


def survey_pairs(
    taken: Taken, location: str, sources: Sequence[str], targets: Sequence[str], encoding: str, against: str
) -> PairSummary:
    """All pairs, or those before the first wrong line, which is the summary's `error`.

    `against` is the location of a test, whose pairs are looked for in the data. Raises DataError if it cannot be read.
    """
    summary = PairSummary(taken, location, encoding)
    try:
        source = PairSource(location, format=taken.format, sources=sources, targets=targets, encoding=encoding)
    except DataError as error:
        summary.error = error
        return summary
    summary.layout = source.layout
    summary.num_files = 1 if taken.format == ALIGNED else len(source.files)
    if against:
        summary.overlap = Overlap(against, PairSource(against, like=source.layout, encoding=encoding))
    fill(summary, source, partial(_feed, summary), "pair")
    if not summary.error and summary.balance.has_odd:
        _find_odd(summary, source)
    return summary


def _feed(summary: PairSummary, pair: Pair) -> None:
    summary.size += 1
    summary.source.feed(pair.sources)
    for target in pair.targets:
        summary.target.feed([target])
    summary.references.add(len(pair.targets))
    summary.balance.feed(*_lengths(pair))
    summary.repeats.feed(pair.sources, pair.targets)
    if any(target.strip() == " ".join(pair.sources).strip() for target in pair.targets):
        summary.num_copies += 1
        summary.first_copy = summary.first_copy or FileLine(pair.path, pair.line)
    if summary.overlap:
        summary.overlap.feed(pair)


def _find_odd(summary: PairSummary, source: PairSource) -> None:
    for pair in source:
        lengths = _lengths(pair)
        if summary.balance.is_odd(*lengths):
            summary.num_odd += 1
            if len(summary.odd) < _ODD_SHOWN:
                summary.odd.append(OddPair(FileLine(pair.path, pair.line), *lengths))


def _lengths(pair: Pair) -> tuple[int, int]:
    """In characters, of all sources and of the first target."""
    return sum(map(len, pair.sources)), len(pair.targets[0])


def _step(length: int) -> int:
    return round(_STEPS * math.log2(length + 1))


def _length(step: int) -> float:
    return float(2 ** (step / _STEPS) - 1)


def _median(values: Sequence[tuple[float, int]]) -> float:
    """The median of values with their counts."""
    left = sum(count for _, count in values) / 2
    for value, count in sorted(values):
        left -= count
        if left <= 0:
            return value
    return 0.0
