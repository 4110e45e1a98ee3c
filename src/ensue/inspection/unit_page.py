"""Units that follow properties of a text, and how saturated gates are, as sections of a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.inspection.page import Section, cut
from ensue.inspection.token_page import MOST_BYTES
from ensue.inspection.units import OPEN, SHUT, Follower, Units, followers, saturation

MOST_FOLLOWERS = 4
SIDE = 150
"""Pixels of a drawing of gates."""
MOST_DOTS = 1_000


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


def saturation_section(units: Sequence[Units]) -> list[Section]:
    """How often each gate is open or shut; none without gates."""
    gates = [_gate(found) for found in units if found.is_gate]
    shown = {"gates": gates, "shut": SHUT, "open": OPEN, "side": SIDE}
    return [Section("Saturated gates", "inspection/gates.html", shown)] if gates else []


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
