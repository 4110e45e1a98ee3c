"""The numbers of pairs: both sides, ratio, copies, repetitions, overlap with a test, odd lengths."""

from __future__ import annotations

from collections.abc import Sequence

from ensue.data.detection.format_table import ALIGNED
from ensue.data.detection.kind import Taken
from ensue.data.pairs import Pair, PairSource
from ensue.data.survey.counts import FileLine
from ensue.data.survey.pair_counts import Overlap
from ensue.data.survey.summary import OddPair, PairSummary
from ensue.errors import DataError

_ODD_SHOWN = 5


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
    try:
        for pair in source:
            _feed(summary, pair)
        if not summary.size:
            raise DataError("no pair in it", location)
    except DataError as error:
        summary.error = error
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
