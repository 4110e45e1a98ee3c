"""Units that follow properties of a text, and how saturated gates are, as sections of a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ensue.inspection.markup import escaped, signed
from ensue.inspection.page import Section, cut, paragraph, table
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
    heading = "Units that follow the text"
    if not correlations:
        return [Section(heading, paragraph("The text is too short to say what units follow.", "note"))]
    count, tokens = sum(r.shape[1] for r in correlations), len(units[0].values)
    chance = math.sqrt(2 * math.log(max(2, count)) / tokens)
    about = (
        "Pearson’s r between a unit’s value behind a token and what the text is there. A click colors the text by the "
        f"unit. The best of {count:,} units has |r| near {chance:.2f} by chance alone, were the {tokens:,} tokens "
        "independent; what is below that is pale."
    )
    rows = []
    for place, name in enumerate(names):
        best = [_button(units, one, chance) for one in followers(correlations, place, MOST_FOLLOWERS)]
        rows.append(f"<tr><td>{escaped(name)}</td><td>{''.join(best)}</td></tr>")
    return [Section(heading, paragraph(about) + table(["property", "units and r"], rows))]


def _button(units: Sequence[Units], one: Follower, chance: float) -> str:
    name = escaped(units[one.group].name)
    kind = ' class="faint"' if abs(one.correlation) < chance else ""
    return (
        f'<button{kind} data-group="{name}" data-unit="{one.number}" title="{signed(one.correlation, 4)}">{name} '
        f"{one.number} <b>{signed(one.correlation)}</b></button>"
    )


def saturation_section(units: Sequence[Units]) -> list[Section]:
    """How often each gate is open or shut; none without gates."""
    gates = [found for found in units if found.is_gate]
    if not gates:
        return []
    about = (
        f"A dot is a unit: to the right the share of the tokens at which its gate is shut (below {SHUT}), upwards that "
        f"at which it is open (above {OPEN}). A dot at the lower left is never saturated. (Karpathy, Johnson &amp; "
        "Fei-Fei 2016)"
    )
    return [Section("Saturated gates", f'{paragraph(about)}<div class="many">{"".join(map(_gate, gates))}</div>')]


def _gate(gate: Units) -> str:
    shut, opened = saturation(gate.values)
    dots = zip(shut.tolist()[:MOST_DOTS], opened.tolist()[:MOST_DOTS], strict=True)
    drawn = "".join(f"M{5 + SIDE * x:.1f} {5 + SIDE * (1 - y):.1f}h0" for x, y in dots)
    name, count = escaped(gate.name), len(shut)
    always = f"{(opened > OPEN).sum():,} of {count:,} nearly always open, {(shut > OPEN).sum():,} shut"
    means = f"mean: {opened.mean():.3f} open, {shut.mean():.3f} shut"
    note = cut(count, min(count, MOST_DOTS), "units")
    return (
        f'<div><h3>{name}</h3><svg width="{SIDE + 10}" height="{SIDE + 10}" role="img" aria-label="{name}">'
        f'<rect class="back" x="5" y="5" width="{SIDE}" height="{SIDE}"/>'
        f'<path class="grid" d="M5 5V{SIDE + 5}H{SIDE + 5}L5 5"/><path class="dots s0 thin" d="{drawn}"/></svg>'
        f'<div class="faint">{always}</div><div class="faint">{means}</div>{note}</div>'
    )
