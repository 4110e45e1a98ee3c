"""The summary and the report of pairs of texts, such as translations."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from typing import Any

from rich.table import Table

from ensue.data.detection.format_table import ALIGNED
from ensue.data.detection.kind import DetectedFormat
from ensue.data.detection.signs import is_sigmorphon
from ensue.data.examples import Pair, PairLayout, PairSource
from ensue.errors import DataError, pluralize
from ensue.extensions.surveying.counts import MAX_TEXTS, FileLine, Lengths, Occurrences, Repeats, Summary, fill
from ensue.extensions.surveying.oddities import is_null, outlier_note
from ensue.extensions.surveying.report import Report, describe_repeats, length_table
from ensue.text.tokens import count_without_blanks, is_unsplit

_MAX_SHOWN_MISALIGNED = 5
_STEPS_PER_OCTAVE = 32
"""The number of steps for each doubling in the logarithmic scale on which lengths are rounded."""
_MIN_PAIRS, _MAX_DEVIATIONS, _MIN_FACTOR, _MAX_QUANTILE_RATIO = 20, 6.0, 2.0, 4
"""The bounds in the docstring of `MisalignmentDetector`."""
_MAD_SCALE = 1.4826
"""The ratio of the standard deviation to the median absolute deviation in a normal distribution."""
_MAX_TRANSDUCED_WORDS, _MIN_SUMMARIZED_WORDS, _MAX_SUMMARY_PERCENT = 2, 50, 50
"""The bounds on mean lengths and on the median ratio for suggesting transducers and summarizers."""
_MAX_FEW_INFLECTIONS = 500
"""The maximum number of inflected words for which the recipe `transduce-few` is suggested."""
_MAX_FEW_TRANSLATIONS = 1_000
"""The maximum number of pairs for which the recipe `translate-few` is suggested. With 3,000 pairs it was worse."""
_FEW_PAIRS = 5_000
"""The number of pairs below which an LSTM is suggested. With 1,500 pairs an LSTM was better; the bound is a guess."""


@dataclass
class Side:
    """The statistics of the sources of pairs, or of the targets. Words are separated by white space."""

    words: Counter[str] = field(default_factory=Counter)
    lengths: Lengths = field(default_factory=Lengths)
    characters: Lengths = field(default_factory=Lengths)
    num_characters: int = 0
    _without_blanks: int = 0

    def feed(self, texts: Sequence[str], pair: Pair) -> None:
        """Add the sources of a pair as one text, or a target."""
        words = [word for text in texts for word in text.split()]
        length = sum(map(len, texts))
        self.words.update(words)
        self.lengths.add(len(words), pair.path, pair.line)
        self.characters.add(length)
        self.num_characters += length
        self._without_blanks += sum(map(count_without_blanks, texts))

    @property
    def has_no_blanks(self) -> bool:
        """Whether the texts have no blanks between words, as in Chinese."""
        return is_unsplit(self._without_blanks, self.num_characters, self.words.total())


class MisalignmentDetector:
    """A detector of pairs that look misaligned, by the lengths s of sources and t of targets in characters.

    If targets are c times as long as sources, (t - c s) / sqrt(t + c s) has about the same spread at all lengths (Gale
    & Church 1993). A pair is misaligned if this distance is more than six deviations from the median distance, and t
    is at most half or at least twice c s. Deviations are estimated by the median absolute deviation. No pair is
    misaligned if there are fewer than 20 pairs, or if the 5 % and 95 % quantiles of t / s differ more than fourfold, as
    in summaries.
    """

    def __init__(self) -> None:
        self.ratios = Lengths()
        """The ratios of target to source in percent."""
        self._counts: Counter[tuple[int, int]] = Counter()
        self._sums = [0, 0]

    def feed(self, source: int, target: int) -> None:
        """Add a pair with these lengths."""
        self.ratios.add(round(100 * target / max(1, source)))
        self._counts[_to_step(source), _to_step(target)] += 1
        self._sums[0] += source
        self._sums[1] += target

    def is_misaligned(self, source: int, target: int) -> bool:
        """Return whether a pair of these lengths is misaligned. All pairs must have been added."""
        low, high = self._bounds
        expected = self._ratio * source
        factor = max(target, expected) / max(1.0, min(target, expected))
        return factor >= _MIN_FACTOR and not low <= self._distance(source, target) <= high

    @property
    def has_misaligned(self) -> bool:
        """Whether any pair is misaligned, by rounded lengths."""
        return any(self.is_misaligned(round(_to_length(s)), round(_to_length(t))) for s, t in self._counts)

    @property
    def _ratio(self) -> float:
        return self._sums[1] / max(1, self._sums[0])

    def _distance(self, source: float, target: float) -> float:
        expected = self._ratio * source
        return (target - expected) / math.sqrt(max(1.0, target + expected))

    @cached_property
    def _bounds(self) -> tuple[float, float]:
        low, high = (self.ratios.quantile(share) for share in (0.05, 0.95))
        if len(self.ratios) < _MIN_PAIRS or high > _MAX_QUANTILE_RATIO * low:
            return -math.inf, math.inf
        distances = [(self._distance(_to_length(s), _to_length(t)), count) for (s, t), count in self._counts.items()]
        median = _median(distances)
        deviation = _MAD_SCALE * _median([(abs(distance - median), count) for distance, count in distances])
        margin = _MAX_DEVIATIONS * max(deviation, 0.5)  # lengths may be nearly proportional
        return median - margin, median + margin


class Overlap:
    """The overlap of a test set and training data. The first `MAX_TEXTS` pairs of the test set are compared by hash."""

    def __init__(self, location: str, test: Iterable[Pair]) -> None:
        self.location = location
        self._test = [
            (FileLine(pair.path, pair.line), hash(pair.sources), [*map(hash, pair.targets)])
            for pair in islice(test, MAX_TEXTS)
        ]
        self._sources = {source for _, source, _ in self._test}
        self._targets = {target for _, _, targets in self._test for target in targets}
        self._seen_sources: set[int] = set()
        self._seen_targets: set[int] = set()
        self._seen_pairs: set[tuple[int, int]] = set()

    def feed(self, pair: Pair) -> None:
        """Add a pair of the training data."""
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
        """The lines of the test pairs whose source is in the training data."""
        return [place for place, source, _ in self._test if source in self._seen_sources]

    @property
    def num_targets(self) -> int:
        """The number of test pairs with a target that is in the training data."""
        return sum(not self._seen_targets.isdisjoint(targets) for _, _, targets in self._test)

    @property
    def num_pairs(self) -> int:
        """The number of test pairs whose source is in the training data together with a target of the pair."""
        return sum(any((source, target) in self._seen_pairs for target in targets) for _, source, targets in self._test)

    def __str__(self) -> str:
        first = f" (the first at {self.sources[0]})" if self.sources else ""
        numbers = f"sources {len(self.sources):,}{first}, targets {self.num_targets:,}, pairs {self.num_pairs:,}"
        return f"{pluralize(len(self), 'pair')} in {self.location}; also in these data: {numbers}"


@dataclass
class PairSummary(Summary):
    """The statistics of pairs."""

    layout: PairLayout = field(default_factory=lambda: PairLayout(""))
    source: Side = field(default_factory=Side)
    target: Side = field(default_factory=Side)
    alignment: MisalignmentDetector = field(default_factory=MisalignmentDetector)
    num_inflected: int = 0
    """The number of pairs of a lemma and several features, such as `V;PST`, with one form."""
    references: Lengths = field(default_factory=Lengths)
    """The numbers of targets of each pair."""
    repeats: Repeats = field(default_factory=Repeats)
    """Repeated sources, with targets as labels."""
    copies: Occurrences = field(default_factory=Occurrences)
    """Pairs whose target is equal to the source."""
    num_misaligned: int = 0
    misaligned: list[str] = field(default_factory=list)
    """The lines and lengths in characters of the first `_MAX_SHOWN_MISALIGNED` of `num_misaligned` pairs."""
    overlap: Overlap | None = None
    """The overlap with a test set, if any."""


def survey_pairs(
    detected: DetectedFormat, location: str, sources: Sequence[str], targets: Sequence[str], encoding: str, against: str
) -> PairSummary:
    """Summarize the pairs before the first invalid line. Raises DataError if the test set `against` is unreadable."""
    summary = PairSummary(detected, location, encoding)
    columns: dict[str, Any] = {"sources": sources, "targets": targets}
    try:
        source = PairSource(location, format=detected.format, **columns, encoding=encoding, incomplete="count")
    except DataError as error:
        summary.error = error
        return summary
    summary.layout = source.layout
    summary.num_files = 1 if detected.format == ALIGNED else len(source.files)
    if against:
        summary.overlap = Overlap(against, PairSource(against, like=source.layout, encoding=encoding))
    fill(summary, source, partial(_feed, summary), "pair")
    if not summary.error and summary.alignment.has_misaligned:
        for pair in source:
            lengths = _measure_lengths(pair)
            if summary.alignment.is_misaligned(*lengths):
                summary.num_misaligned += 1
                if len(summary.misaligned) < _MAX_SHOWN_MISALIGNED:
                    summary.misaligned.append(f"{pair.path}:{pair.line} ({lengths[0]:,} and {lengths[1]:,})")
    return summary


def _feed(summary: PairSummary, pair: Pair) -> None:
    summary.size += 1
    summary.source.feed(pair.sources, pair)
    for target in pair.targets:
        summary.target.feed([target], pair)
    summary.num_inflected += is_sigmorphon(["\t".join((pair.sources[0], *pair.targets, *pair.sources[1:]))])
    summary.references.add(len(pair.targets))
    summary.alignment.feed(*_measure_lengths(pair))
    summary.repeats.feed(pair.sources, pair.targets, pair.path, pair.line)
    if any(target.strip() == " ".join(pair.sources).strip() for target in pair.targets):
        summary.copies.add(pair.path, pair.line)
    if any(map(is_null, (*pair.sources, *pair.targets))):
        summary.null_texts.add(pair.path, pair.line)
    if summary.overlap:
        summary.overlap.feed(pair)


def _measure_lengths(pair: Pair) -> tuple[int, int]:
    return sum(map(len, pair.sources)), len(pair.targets[0])


def _to_step(length: int) -> int:
    return round(_STEPS_PER_OCTAVE * math.log2(length + 1))


def _to_length(step: int) -> float:
    return float(2 ** (step / _STEPS_PER_OCTAVE) - 1)


def _median(values: Sequence[tuple[float, int]]) -> float:
    remaining = sum(count for _, count in values) / 2
    for value, count in sorted(values):
        remaining -= count
        if remaining <= 0:
            return value
    return 0.0


class PairReport(Report[PairSummary]):
    """The report on pairs."""

    def facts(self) -> Iterator[tuple[str, str]]:
        summary = self.summary
        header = " with a header" if summary.layout.header else ""
        yield "taken for", f"{summary.detected.format}{header}: pairs of source and target ({summary.detected.reason})"
        if not summary.size:
            return
        yield "read as", str(summary.layout).partition(", ")[2] or summary.layout.format
        yield "pairs", f"{summary.size:,}"
        counts = summary.references
        if set(counts.counts) != {1}:
            smallest, largest = counts.quantile(0), counts.quantile(1)
            span = f"{smallest}" if smallest == largest else f"{smallest} to {largest}, {counts.mean:.2f} on average"
            yield "references", f"{span} for each source"
        for name, side in self._sides.items():
            words = f"{side.words.total():,} words, {len(side.words):,} distinct"
            yield name, f"{words}; {side.num_characters:,} characters"
        low, median, high = (summary.alignment.ratios.quantile(share) / 100 for share in (0.05, 0.5, 0.95))
        span = f"{low:.2f} to {high:.2f} in 90 % of pairs"
        yield "ratio", f"{median:.2f} characters of the target to one of the source, {span}"
        if summary.incomplete:
            yield "incomplete", summary.incomplete
        if summary.copies.count:
            yield "copies", str(summary.copies)
        if sources := summary.repeats.num_repeats:
            yield "repeated", describe_repeats(summary.repeats, pluralize(sources, "source"), "targets")
        if summary.overlap is not None:
            yield "overlap", str(summary.overlap)

    def tables(self) -> Iterator[Table]:
        if not self.summary.size:
            return
        words = {f"words in a {name}": side.lengths for name, side in self._sides.items()}
        characters = {f"characters in a {name}": side.characters for name, side in self._sides.items()}
        yield length_table(words | characters)

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        summary = self.summary
        for name, side in self._sides.items():
            if note := outlier_note(side.lengths, name, f"data.{name}_tokens truncates it"):
                yield note
        if summary.num_misaligned:
            more = ", ..." if summary.num_misaligned > len(summary.misaligned) else ""
            number = pluralize(summary.num_misaligned, "pair looks", "pairs look")
            examples = ", ".join(summary.misaligned) + more
            yield f"{number} misaligned by the characters of source and target: {examples}"
        if summary.target.has_no_blanks:
            yield "the target has no blanks between words, so scores are by characters"

    def recipe(self) -> tuple[str, str, str]:
        source, target = self.summary.source, self.summary.target
        length, median = max(source.lengths.mean, target.lengths.mean), self.summary.alignment.ratios.quantile(0.5)
        are_inflected = self.summary.layout.format == "sigmorphon" or 2 * self.summary.num_inflected > self.summary.size
        if are_inflected and self.summary.size <= _MAX_FEW_INFLECTIONS:
            return "transduce-few", "transducer", "inflected words are few"
        if self.summary.layout.format in ("cmudict", "sigmorphon") or length <= _MAX_TRANSDUCED_WORDS:
            return "transduce-lstm", "transducer", "both sides are words or short"
        if source.lengths.mean > _MIN_SUMMARIZED_WORDS and median < _MAX_SUMMARY_PERCENT:
            return "summarize-pointer", "summarizer", "targets are much shorter than sources"
        if self.summary.size <= _MAX_FEW_TRANSLATIONS:
            return "translate-few", "translator", f"there are at most {_MAX_FEW_TRANSLATIONS:,} pairs"
        if self.summary.size < _FEW_PAIRS:
            return "translate-lstm", "translator", f"there are under {_FEW_PAIRS:,} pairs"
        return "translate-transformer", "translator", "pairs are many; exports to C and the web need translate-lstm"

    def settings(self) -> Iterator[str]:
        yield from super().settings()
        if self.recipe()[0] == "translate-lstm":
            yield "train.patience=2"  # the best weights of 3,000 pairs come after a fifth of the steps
        for key in ("sources", "targets"):
            if names := self.columns.get(key):
                yield f"data.{key}={json.dumps(names.split(','), ensure_ascii=False)}"

    @property
    def _sides(self) -> dict[str, Side]:
        return {"source": self.summary.source, "target": self.summary.target}
