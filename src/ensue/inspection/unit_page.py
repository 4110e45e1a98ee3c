"""Units that follow properties of a text, how saturated gates are, and a range of a text as a pattern, as sections.

A pattern is of units that are on exactly there; other ranges with the same pattern are found. As in LSTMVis (Strobelt,
Gehrmann, Pfister & Rush 2018) a unit is on where its value is at least a threshold. It belongs to a range of tokens if
it is on at all of them, and off at the token before and at the token behind.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.arguments import check_whole
from ensue.errors import EnsueError
from ensue.inspection.page import Section, cut
from ensue.inspection.token_page import MOST_BYTES
from ensue.inspection.units import OPEN, SHUT, Follower, Units, followers, saturation
from ensue.runs.pictures import Lines

MOST_FOLLOWERS = 4
SIDE = 150
"""Pixels of a drawing of gates."""
MOST_DOTS = 1_000
MOST_PLOTTED = 60
"""The most tokens over which gates are plotted."""


def chosen_units(units: Sequence[Units], correlations: Sequence[NDArray[np.float64]], tokens: int) -> list[list[int]]:
    """The units that are on a page with so many tokens: all, or of each kind those that follow something best."""
    room = max(1, MOST_BYTES // max(1, tokens * len(units)))
    ranked = [
        np.abs(correlations[group]).max(0) if correlations else found.values.std(0) for group, found in enumerate(units)
    ]
    kept = [set(np.argsort(-scores, kind="stable")[:room].tolist()) for scores in ranked]
    for one in _listed(correlations):
        kept[one.group].add(one.number)
    return [sorted(some) for some in kept]


def _listed(correlations: Sequence[NDArray[np.float64]]) -> Iterable[Follower]:
    count = len(correlations[0]) if correlations else 0
    return [one for place in range(count) for one in followers(correlations, place, MOST_FOLLOWERS)]


def follower_section(
    units: Sequence[Units], names: Sequence[str], correlations: Sequence[NDArray[np.float64]]
) -> list[Section]:
    """The units that follow each property best; none without units."""
    if not units:
        return []
    count, tokens = sum(r.shape[1] for r in correlations), len(units[0].values)
    chance = math.sqrt(2 * math.log(max(2, count)) / tokens)
    rows = [
        (name, [(units[one.group].name, one) for one in followers(correlations, place, MOST_FOLLOWERS)])
        for place, name in enumerate(names if correlations else [])
    ]
    shown = {"rows": rows, "count": count, "tokens": tokens, "chance": chance}
    return [Section("Units that follow the text", "inspection/followers.html", shown)]


def saturation_section(units: Sequence[Units], tokens: Sequence[str]) -> list[Section]:
    """How often each gate is open or shut over these tokens; none without gates."""
    gates = [_gate(found) for found in units if found.is_gate]
    shown = {"gates": gates, "shut": SHUT, "open": OPEN, "side": SIDE}
    return [Section("Saturated gates", "inspection/gates.html", shown, _pictures(units, tokens))] if gates else []


def _pictures(units: Sequence[Units], tokens: Sequence[str]) -> dict[str, dict[str, Lines]]:
    """The means of all gates of each layer over the first tokens, for matplotlib."""
    layers: dict[str, dict[str, NDArray[Any]]] = defaultdict(dict)
    for found in (found for found in units if found.is_gate):
        layers[f"layer {found.layer}"][found.kind] = found.values[:MOST_PLOTTED].mean(1)
    return {"gates": {name: Lines(tokens[:MOST_PLOTTED], of, "mean of the units") for name, of in layers.items()}}


def _gate(gate: Units) -> dict[str, Any]:
    shut, opened = saturation(gate.values)
    count = len(shut)
    return {
        "name": gate.name,
        "dots": list(zip(shut.tolist()[:MOST_DOTS], opened.tolist()[:MOST_DOTS], strict=True)),
        "count": count,
        "always": (int((opened > OPEN).sum()), int((shut > OPEN).sum())),
        "means": (float(opened.mean()), float(shut.mean())),
        "note": cut(count, min(count, MOST_DOTS), "units"),
    }


THRESHOLD = 0.3
MOST_MATCHES = 20


class SelectedUnit(NamedTuple):
    """A unit, `number` in `units[group]`: its `least` value in the range, and the larger one `beside` it (or -inf)."""

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
