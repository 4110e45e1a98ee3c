"""A range of a text as a pattern of units, as a section of a page."""

from __future__ import annotations

from collections.abc import Sequence

from ensue.inspection.page import Section
from ensue.inspection.selection import THRESHOLD
from ensue.inspection.units import Units


def selection_section(units: Sequence[Units], tokens: int) -> list[Section]:
    """The section for a text of which so many tokens are shown; none without units."""
    shown = {"size": tokens, "threshold": THRESHOLD, "kinds": [found.name for found in units]}
    return [Section("A range as a pattern", "inspection/selection.html", shown)] if units else []
