"""Sections about units: correlations with properties of the text, saturation of gates, patterns of active units.

As in LSTMVis (Strobelt, Gehrmann, Pfister & Rush 2018), a unit is active where its value reaches a threshold. A unit is
in the pattern of a range of tokens if the unit is active at all tokens of the range, and inactive at the tokens before
and after the range. Other ranges with units of the pattern are matches.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.errors import EnsueError, check_integer
from ensue.inspection.page import Section, note_cut
from ensue.inspection.token_page import MAX_FOLLOWERS, MAX_SHOWN_TOKENS
from ensue.inspection.units import OPEN, SHUT, Units, find_followers, measure_saturation
from ensue.runs.pictures import LinePlot

GATE_DRAWING_PIXELS = 150
MAX_DOTS = 1_000
MAX_PLOTTED_TOKENS = 60
"""The maximum number of tokens in a plot of gates."""


def unit_sections(
    units: Sequence[Units], names: Sequence[str], correlations: Sequence[NDArray[np.float64]], tokens: Sequence[str]
) -> list[Section]:
    """Return the sections for the selection of a range of `tokens`, of the units with the largest correlations with the
    property of each name, and of the shares of tokens at which gates are open or closed; an empty list without units.
    """
    if not units:
        return []
    kinds = [layer_units.name for layer_units in units]
    pattern = {"size": min(len(tokens), MAX_SHOWN_TOKENS), "threshold": THRESHOLD, "kinds": kinds}
    count, length = sum(r.shape[1] for r in correlations), len(units[0].values)
    chance = math.sqrt(2 * math.log(max(2, count)) / length)
    rows = [
        (name, [(units[unit.group].name, unit) for unit in find_followers(correlations, row, MAX_FOLLOWERS)])
        for row, name in enumerate(names if correlations else [])
    ]
    followers = {"rows": rows, "count": count, "tokens": length, "chance": chance}
    gates = [_gate(layer_units) for layer_units in units if layer_units.is_gate]
    saturation = {"gates": gates, "shut": SHUT, "open": OPEN, "side": GATE_DRAWING_PIXELS}
    return [
        Section("A range as a pattern", "inspection/selection.html", pattern),
        Section("Units that follow the text", "inspection/followers.html", followers),
        *([Section("Saturated gates", "inspection/gates.html", saturation, _pictures(units, tokens))] if gates else []),
    ]


def _pictures(units: Sequence[Units], tokens: Sequence[str]) -> dict[str, dict[str, LinePlot]]:
    """Return the mean of each layer's gates over the first tokens, for matplotlib."""
    layers: dict[str, dict[str, NDArray[Any]]] = defaultdict(dict)
    for gate in filter(lambda layer_units: layer_units.is_gate, units):
        layers[f"layer {gate.layer}"][gate.kind] = gate.values[:MAX_PLOTTED_TOKENS].mean(1)
    shown = tokens[:MAX_PLOTTED_TOKENS]
    return {"gates": {name: LinePlot(shown, means, "mean of the units") for name, means in layers.items()}}


def _gate(gate: Units) -> dict[str, Any]:
    shut, opened = measure_saturation(gate.values)
    count = len(shut)
    return {
        "name": gate.name, "dots": list(zip(shut.tolist()[:MAX_DOTS], opened.tolist()[:MAX_DOTS], strict=True)),
        "count": count, "always": (int((opened > OPEN).sum()), int((shut > OPEN).sum())),
        "means": (float(opened.mean()), float(shut.mean())), "note": note_cut(count, min(count, MAX_DOTS), "units"),
    }  # fmt: skip


THRESHOLD = 0.3
"""The default threshold: a unit is active where its value is at least this number."""
MAX_MATCHES = 20


class SelectedUnit(NamedTuple):
    """Unit `number` of `units[group]`, with the minimum of its values in the range (`least`), and the maximum at the
    tokens before and after the range (`beside`; -inf without such tokens).
    """

    group: int
    number: int
    least: float
    beside: float

    @property
    def margin(self) -> float:
        """The difference between `least` and `beside`."""
        return self.least - self.beside


class Match(NamedTuple):
    """A range from `start` to `end` (exclusive), and the number of selected units that are active exactly there."""

    start: int
    end: int
    shared: int


class Selection(NamedTuple):
    """The units of a range by decreasing margin, and other ranges by the decreasing number of shared units."""

    start: int
    end: int
    threshold: float
    units: list[SelectedUnit]
    matches: list[Match]


def select(
    units: Sequence[Units], start: int, end: int, *, threshold: float = THRESHOLD, max_matches: int = MAX_MATCHES
) -> Selection:
    """Return the units that are active in exactly the range from `start` to `end` (exclusive), and the best matches.

    At most `max_matches` matches are chosen, the first of equal ones. They overlap neither the range nor each other.
    Raises EnsueError for a range outside of the text.
    """
    length = len(units[0].values) if units else 0
    check_integer("start", start, 0, max(0, length - 1))
    check_integer("end", end, start + 1, max(start + 1, length))
    if not units:
        raise EnsueError("the model has no units")
    values = enumerate(layer_units.values for layer_units in units)
    selected = [unit for group, matrix in values for unit in _select(matrix, group, start, end, threshold)]
    selected.sort(key=lambda unit: (-unit.margin if np.isfinite(unit.margin) else -unit.least, unit.group, unit.number))
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for unit in selected:
        for tokens in find_runs(units[unit.group].values[:, unit.number] >= threshold):
            counts[tokens] += 1
    chosen, candidates = [Match(start, end, 0)], [Match(*tokens, count) for tokens, count in counts.items()]
    for match in sorted(candidates, key=lambda match: (-match.shared, match.start, match.end)):
        if len(chosen) > max_matches:
            break
        if all(match.end <= other.start or other.end <= match.start for other in chosen):
            chosen.append(match)
    return Selection(start, end, threshold, selected, chosen[1:])


def _select(values: NDArray[np.float32], group: int, start: int, end: int, threshold: float) -> list[SelectedUnit]:
    least = values[start:end].min(0)
    around = [values[index] for index in (start - 1, end) if 0 <= index < len(values)]
    beside = np.max(around, axis=0) if around else np.full(values.shape[1], -np.inf)
    numbers = np.flatnonzero((least >= threshold) & (beside < threshold)).tolist()
    return [SelectedUnit(group, number, float(least[number]), float(beside[number])) for number in numbers]


def find_runs(on: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the maximal ranges [start, end) in which `on` (T,) is True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], on, [False])).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
