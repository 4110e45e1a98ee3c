"""A beam search as a drawing: what was kept after each token, and what was dropped and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ensue.decode.candidates import Candidate
from ensue.decode.search import BeamSearch
from ensue.inspection.markup import plain
from ensue.inspection.page import Section, cut
from ensue.tasks.sequence_to_sequence.view import OutputView, Search

MOST_STEPS, MOST_BEAMS = 40, 12
"""The most steps, and the most beginnings that go on after each, which are drawn."""
MOST_ENDED = 20
MOST_DROPPED = 2
"""The best of those that are left out after a token are drawn, so many."""
COLUMN, ROW, WIDTH, HEIGHT = 128, 28, 104, 22
KINDS = {"ends": "ends", "is left out": "out", "comes too late": "late", "is too long": "late"}


class Box(NamedTuple):
    """A beginning in the drawing: its place from above among those of the same length, and what became of it."""

    candidate: Candidate
    row: int
    is_best: bool
    why: str

    @property
    def kind(self) -> str:
        """The classes of its look."""
        return f"{KINDS.get(self.candidate.fate, '')} {'best' if self.is_best else ''}".strip()

    @property
    def corner(self) -> tuple[int, int]:
        """The upper left one, in pixels."""
        return COLUMN * (len(self.candidate.ids) - 1) + 2, ROW * self.row + 1


def search_sections(view: OutputView, search: BeamSearch) -> list[Section]:
    """The drawing and the best hypotheses; nothing for an output that was given."""
    if view.search is None:
        return []
    steps = max(len(found.ids) for found in view.search.candidates)
    ended = [one for one in view.search.candidates if one.fate == "ends"]
    ended.sort(key=lambda one: -_score(one, search))
    shown = {
        "width": search.width,
        "notes": [
            cut(steps, min(steps, MOST_STEPS), "steps"),
            cut(search.width, min(search.width, MOST_BEAMS), "beams", "best"),
        ],
        **_drawing(boxes(view.search, search), view.search),
        "ended": [(_score(one, search), one, _text(one, view.search)) for one in ended[:MOST_ENDED]],
        "ended_note": cut(len(ended), min(len(ended), MOST_ENDED), "outputs", "best"),
        "has_coverage": bool(search.coverage_penalty),
    }
    return [Section("The search", "tasks/sequence_to_sequence/search.html", shown)]


def boxes(found: Search, search: BeamSearch) -> list[Box]:
    """After each token the beginnings that were kept, the most probable first, and the best that were not."""
    best, drawn = found.hypotheses[0], list[Box]()
    whole = (*best.ids, *(one.ids[-1] for one in found.candidates if one.ids[:-1] == best.ids and one.fate == "ends"))
    ended = sorted((_score(one, search) for one in found.candidates if one.fate == "ends"), reverse=True)
    for length in range(1, MOST_STEPS + 1):
        here = sorted((one for one in found.candidates if len(one.ids) == length), key=lambda one: -one.log_probability)
        kept = [one for one in here if one.fate != "is left out"]
        dropped = [one for one in here if one.fate == "is left out"][:MOST_DROPPED]
        for row, one in enumerate([*kept[:MOST_BEAMS], *dropped]):
            if one.fate == "is left out":
                why = f"out of the beam: the last that was kept has {plain(kept[-1].log_probability, 4)}"
            else:
                why = _why(one, found, search, ended)
            drawn.append(Box(one, row, one.ids == whole[:length] and one.fate != "is left out", why))
    return drawn


def _why(one: Candidate, found: Search, search: BeamSearch, ended: Sequence[float]) -> str:
    match one.fate:
        case "ends":
            score = _score(one, search)
            return f"ended with the score {plain(score, 4)}, number {ended.index(score) + 1} of those that ended"
        case "is too long":
            return f"stopped: {found.limit} tokens are the most"
        case "comes too late":
            bound = one.log_probability / math.pow(found.limit + 1, search.length_penalty)
            least = found.hypotheses[-1].score
            return f"stopped: its score stays below {plain(bound, 4)}, and the output has {plain(least, 4)}"
    return "goes on"


def _score(one: Candidate, search: BeamSearch) -> float:
    """Without a coverage penalty."""
    return one.log_probability / math.pow(len(one.ids), search.length_penalty)


def _drawing(drawn: list[Box], found: Search) -> dict[str, Any]:
    """All boxes, with edges from each to those that continue it; the output's lie on top."""
    drawn = sorted(drawn, key=lambda box: box.is_best)
    parents = {box.candidate.ids: box for box in drawn if box.candidate.fate == "goes on"}
    return {
        "edges": [(parents[above], box) for box in drawn if (above := box.candidate.ids[:-1]) in parents],
        "nodes": [(box, found.symbols[box.candidate.ids[-1]], _text(box.candidate, found)) for box in drawn],
        "size": (COLUMN + max(box.corner[0] for box in drawn), ROW + max(box.corner[1] for box in drawn)),
        "box": (WIDTH, HEIGHT),
        "gap": COLUMN - WIDTH,
    }


def _text(one: Candidate, found: Search) -> str:
    return " ".join(found.symbols[id] for id in one.ids)
