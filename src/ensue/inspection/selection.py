"""A range of a text as a pattern: the units that are on exactly there, and other ranges with the same pattern.

As in LSTMVis (Strobelt, Gehrmann, Pfister & Rush 2018): a unit is on where its value is at least a threshold, and it
belongs to a range of tokens if it is on at all of them, and off at the token before and at the token behind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.arguments import check_whole
from ensue.errors import EnsueError
from ensue.inspection.page import Section
from ensue.inspection.units import Units

THRESHOLD = 0.3
MOST_MATCHES = 20


class SelectedUnit(NamedTuple):
    """A unit, `number` in `units[group]`: its `least` value in the range, and the larger one `beside` it (-inf: nothing
    stands there).
    """

    group: int
    number: int
    least: float
    beside: float

    @property
    def margin(self) -> float:
        """By how much the range stands out."""
        return self.least - self.beside


class Match(NamedTuple):
    """Tokens from `start` up to and without `end`, and how many of the selected units are on exactly there."""

    start: int
    end: int
    shared: int


class Selection(NamedTuple):
    """The units of a range, those that stand out most first, and other ranges with most of them on, the best first."""

    start: int
    end: int
    threshold: float
    units: list[SelectedUnit]
    matches: list[Match]


def select(
    units: Sequence[Units], start: int, end: int, *, threshold: float = THRESHOLD, most: int = MOST_MATCHES
) -> Selection:
    """The units that are on exactly over tokens `start` up to and without `end`, and at most so many other ranges.

    These do not overlap the selected range or one another; of ranges with equally many units the first comes first.
    Raises EnsueError for a range that is not in the text.
    """
    length = len(units[0].values) if units else 0
    check_whole("start", start, 0, max(0, length - 1))
    check_whole("end", end, start + 1, max(start + 1, length))
    if not units:
        raise EnsueError("the model has no units that could be on")
    chosen = [
        one for group, found in enumerate(units) for one in _on_exactly(found.values, group, start, end, threshold)
    ]
    chosen.sort(key=lambda one: (-one.margin if np.isfinite(one.margin) else -one.least, one.group, one.number))
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for one in chosen:
        for places in runs(units[one.group].values[:, one.number] >= threshold):
            counts[places] += 1
    matches = _apart([Match(*places, count) for places, count in counts.items()], (start, end), most)
    return Selection(start, end, threshold, chosen, matches)


def _on_exactly(values: NDArray[np.float32], group: int, start: int, end: int, threshold: float) -> list[SelectedUnit]:
    least = values[start:end].min(0)
    around = [values[place] for place in (start - 1, end) if 0 <= place < len(values)]
    beside = np.max(around, axis=0) if around else np.full(values.shape[1], -np.inf)
    numbers = np.flatnonzero((least >= threshold) & (beside < threshold)).tolist()
    return [SelectedUnit(group, number, float(least[number]), float(beside[number])) for number in numbers]


def runs(on: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The longest ranges [start, end) in which all of `on` (T,) is True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], on, [False])).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _apart(matches: list[Match], taken: tuple[int, int], most: int) -> list[Match]:
    """The best matches that do not overlap."""
    kept = [Match(*taken, 0)]
    for match in sorted(matches, key=lambda match: (-match.shared, match.start, match.end)):
        if len(kept) > most:
            break
        if all(match.end <= other.start or other.end <= match.start for other in kept):
            kept.append(match)
    return kept[1:]


def selection_section(units: Sequence[Units], tokens: int) -> list[Section]:
    """The section for a text of which so many tokens are shown; none without units."""
    shown = {"size": tokens, "threshold": THRESHOLD, "kinds": [found.name for found in units]}
    return [Section("A range as a pattern", "inspection/selection.html", shown)] if units else []
