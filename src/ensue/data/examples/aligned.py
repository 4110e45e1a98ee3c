"""Pairs of two aligned files, a line of each; and the place of lines that one of the files lacks."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice, zip_longest
from statistics import median

from ensue.data.examples.example import Pair, checked_pair
from ensue.data.lines import Lines
from ensue.data.records.record import Record, records, without_end
from ensue.errors import DataError

_MOST_REMEMBERED = 1 << 21
"""The place of missing lines is searched in files of up to so many lines."""


def read_aligned(opened: Callable[[], tuple[Lines, Lines]]) -> Iterator[Pair]:
    """A pair for each line of both; lines that are empty in both are skipped.

    Raises DataError for files of different lengths, and for a line that is empty in one.
    """
    source, target = opened()
    number = 0
    for number, (left, right) in enumerate(zip_longest(_texts(source), _texts(target)), 1):
        if left is None or right is None:
            raise _unequal(opened)
        if not left.strip() and not right.strip():
            continue
        if not left.strip() or not right.strip():
            _check_lengths(opened)
        yield checked_pair(Pair((left,), (right,), source.name, number), target.name)
    if not number:
        raise DataError("no lines", source.name)


def _texts(lines: Lines) -> Iterator[str]:
    return (without_end(record.text)[0] for record in _all(lines))


def _all(lines: Lines) -> Iterator[Record]:
    return records(lines, lines.name, empty=True)


def _check_lengths(opened: Callable[[], tuple[Lines, Lines]]) -> None:
    """Raises DataError if the lengths differ: an empty side is then the place of a missing line."""
    source, target = opened()
    if sum(1 for _ in source) != sum(1 for _ in target):
        raise _unequal(opened)


def _unequal(opened: Callable[[], tuple[Lines, Lines]]) -> DataError:
    """The error for files of different lengths, with the place where they part."""
    names = [lines.name for lines in opened()]
    lengths = [array("l", map(len, _texts(lines))) for lines in opened()]
    counts = [len(each) for each in lengths]
    short = counts[0] > counts[1]  # the place of the shorter
    missing = abs(counts[0] - counts[1])
    message = f"{counts[short]:,} lines, but {names[not short]} has {counts[not short]:,}"
    pairs = enumerate(zip(*lengths, strict=False), 1)
    line = next((number for number, (left, right) in pairs if (left == 0) != (right == 0)), 0)  # empty on one side
    if line:
        empty = names[lengths[1][line - 1] == 0]
        return DataError(f"{message}; line {line:,} is the first that is empty in only one ({empty})", names[short])
    if min(counts) and max(counts) <= _MOST_REMEMBERED:
        line = parting(lengths[short], lengths[not short]) + 1
        lines = "a line is" if missing == 1 else f"{missing:,} lines are"
        if line > counts[short]:
            message += f"; by their lengths {lines} missing at its end"
        else:
            message += f"; by their lengths {lines} missing at about line {line:,}"
    return DataError(message, names[short])


def parting(short: Sequence[int], long: Sequence[int]) -> int:
    """The line of `short` (from 0) before which lines of `long` are missing, if they are all at one place.

    The lengths of aligned lines have about the same ratio. For each place the cost is the sum of deviations from this
    ratio: the lines before it are compared with the same numbers, the lines after it with those
    `len(long) - len(short)` further on. The place of the lowest cost is taken.
    """
    shift = len(long) - len(short)
    before = _misfits(short, long)
    behind = _misfits(short, islice(long, shift, None))
    costs = accumulate((a - b for a, b in zip(before, behind, strict=True)), initial=0.0)
    return min(enumerate(costs), key=lambda item: (item[1], -item[0]))[0]


def _misfits(short: Sequence[int], long: Iterable[int]) -> list[float]:
    """The deviation of the logarithm of each ratio of lengths from the median."""
    ratios = [math.log((a + 1) / (b + 1)) for a, b in zip(short, long, strict=False)]
    usual = median(ratios)
    return [abs(ratio - usual) for ratio in ratios]
