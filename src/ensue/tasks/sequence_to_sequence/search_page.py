"""A beam search as a drawing: what was kept after each token, and what was dropped and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ensue.decode.record import Candidate
from ensue.decode.search import BeamSearch
from ensue.inspection.markup import clipped, escaped, plain
from ensue.inspection.page import Section, cut, paragraph, table
from ensue.tasks.sequence_to_sequence.view import Search, SequenceView

LEGEND = (
    '<span class="key best"></span>the output<span class="key"></span>goes on'
    '<span class="key ends"></span>ended<span class="key late"></span>stopped'
    '<span class="key out"></span>out of the beam'
)
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


def search_sections(view: SequenceView, search: BeamSearch) -> list[Section]:
    """The drawing and the best hypotheses; nothing for an output that was given."""
    if view.search is None:
        return []
    steps = max(len(found.ids) for found in view.search.candidates)
    about = (
        "A box is a beginning of an output: its last token, and ln P of the whole. From left to right each gets one "
        f"more token, and the {search.width} best by ln P are kept, the best above. What has ended waits. The search "
        "is over when nothing that goes on can exceed it any more."
    )
    notes = cut(steps, min(steps, MOST_STEPS), "steps") + cut(
        search.width, min(search.width, MOST_BEAMS), "beams", "best"
    )
    return [
        Section(
            "The search",
            paragraph(about)
            + paragraph(LEGEND)
            + notes
            + _drawing(boxes(view.search, search), view.search)
            + _best(view.search, search),
        )
    ]


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


def _drawing(drawn: list[Box], found: Search) -> str:
    """All boxes, with edges from each to those that continue it; the output's lie on top."""
    drawn = sorted(drawn, key=lambda box: box.is_best)
    parents = {box.candidate.ids: box for box in drawn if box.candidate.fate == "goes on"}
    edges = [_edge(parents[above], box) for box in drawn if (above := box.candidate.ids[:-1]) in parents]
    width = COLUMN + max(box.corner[0] for box in drawn)
    height = ROW + max(box.corner[1] for box in drawn)
    return (
        f'<figure><div class="scroll"><svg width="{width}" height="{height}" role="img" aria-label="the search">'
        f"{''.join(edges)}{''.join(_node(box, found) for box in drawn)}</svg></div></figure>"
    )


def _edge(parent: Box, box: Box) -> str:
    (x, y), (_, below), dx = parent.corner, box.corner, COLUMN - WIDTH
    down = below - y
    return f'<path class="edge {box.kind}" d="M{x + WIDTH} {y + HEIGHT // 2}c{dx} 0 0 {down} {dx} {down}"/>'


def _node(box: Box, found: Search) -> str:
    one, (x, y) = box.candidate, box.corner
    text = " ".join(found.symbols[id] for id in one.ids)
    title = f"{clipped(text, 300)}\nln P {plain(one.log_probability, 4)}\n{box.why}"
    return (
        f'<g class="node {box.kind}"><rect class="back" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4">'
        f"<title>{escaped(title)}</title></rect>"
        f'<text x="{x + 6}" y="{y + 15}">{escaped(clipped(found.symbols[one.ids[-1]], 9))}</text>'
        f'<text class="end small" x="{x + WIDTH - 5}" y="{y + 15}">{plain(one.log_probability)}</text></g>'
    )


def _best(found: Search, search: BeamSearch) -> str:
    """The hypotheses that ended, the best first."""
    ended = sorted((one for one in found.candidates if one.fate == "ends"), key=lambda one: -_score(one, search))
    rows = [
        f'<tr><td class="number">{plain(_score(one, search), 4)}</td>'
        f'<td class="number">{plain(one.log_probability, 4)}</td>'
        f'<td class="number">{len(one.ids)}</td><td><bdi>'
        f"{escaped(clipped(' '.join(found.symbols[id] for id in one.ids), 200))}</bdi></td></tr>"
        for one in ended[:MOST_ENDED]
    ]
    if not rows:
        return paragraph("No hypothesis has ended.", "note")
    note = paragraph("The scores are without the coverage penalty.", "note") if search.coverage_penalty else ""
    cuts = cut(len(ended), len(rows), "outputs", "best")
    return f"<h3>What ended</h3>{note}{cuts}" + table(["#score", "#ln P", "#tokens", ""], rows)
