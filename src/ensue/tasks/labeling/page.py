"""The sections of a page for a `TaggerView`: the sentence, the scores, the paths. `words_page` has
those of the words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from ensue.inspection.drawing import GUTTER, HEAD, ROW, WordColumns, cell, column_names, figure, frame, never, row_names
from ensue.inspection.encoder_page import Seen, encoder_sections
from ensue.inspection.markup import clipped, escaped, plain, share
from ensue.inspection.page import Section, cut, paragraph, table
from ensue.inspection.texts import ShownText, labeled_text
from ensue.tasks.labeling.view import TaggerView, TagPath
from ensue.tasks.labeling.words_page import letters_section, words_section

MOST_WORDS = 60
"""The most words that are drawn."""
MOST_TAGS = 25
"""The most tags that are drawn, unless the path has more."""
MOST_CHANGES = 12
"""The most words that are named for a path, at which it differs from the best one."""
PREFIXES = "BIMELSUW"


def tagger_sections(view: TaggerView, text: ShownText, *, colors: Mapping[str, str], has_spans: bool) -> list[Section]:
    """All sections. `text` has the labels of the training data's scheme; `has_spans` tells whether the tags write
    spans.
    """
    columns = WordColumns(view.words[:MOST_WORDS])
    tags = drawn_tags(view, len(columns), has_spans=has_spans)
    sections = [
        Section("The sentence and its labels", labeled_text(text, colors)),
        Section("Emission scores and the best path", _lattice(view, columns, tags)),
    ]
    if view.tables is not None:
        sections.append(Section("Transition scores", _transitions(view, tags)))
        sections.append(Section("The best paths", _paths(view)))
    sections.append(words_section(view))
    if view.characters:
        sections.append(letters_section(view))
    return [*sections, *encoder_sections([Seen(columns, view.traces, view.attention)])]


def drawn_tags(view: TaggerView, num_words: int, *, has_spans: bool) -> list[int]:
    """The tags to draw: those of the path, then those that are most probable at a word. Tags of a
    class stay together.
    """
    wanted = list(dict.fromkeys(view.path[:num_words].tolist()))
    by_share = np.argsort(-view.marginals[:num_words].max(0), kind="stable").tolist()
    wanted += [tag for tag in by_share if tag not in wanted][: max(0, MOST_TAGS - len(wanted))]

    def place(tag: int) -> tuple[str, int, int]:
        prefix, _, label = view.tags[tag].partition("-")
        return (label, PREFIXES.find(prefix), tag) if has_spans else ("", 0, tag)

    return sorted(wanted, key=place)


def _lattice(view: TaggerView, columns: WordColumns, tags: Sequence[int]) -> str:
    """Draws tags × words with the best path, and below them the probabilities of the tag and of the next best one."""
    foot = HEAD + ROW * len(tags) + 8
    height = foot + 60
    most = float(np.abs(view.emissions[: len(columns)][:, tags]).max())
    drawing = []
    for column, word in enumerate(columns.words):
        cells = []
        for row, tag in enumerate(tags):
            value, probability = float(view.emissions[column, tag]), view.marginals[column, tag]
            title = f"{word} · {view.tags[tag]}\nemission {plain(value, 4)}\nprobability {probability:.4f}"
            place = {"x": columns.lefts[column], "y": HEAD + ROW * row, "width": columns.widths[column]}
            cells.append(cell(value, most, title=title, **place))
        drawing.append(columns.group(column, height, "".join(cells) + _probabilities(view, column, columns, foot)))
    gutter = row_names([view.tags[tag] for tag in tags]) + (
        f'<text class="end faint" x="{GUTTER - 8}" y="{foot + 13}">probability</text>'
        f'<text class="end faint" x="{GUTTER - 8}" y="{foot + 36}">next best</text>'
    )
    drawing.append(_drawn_path(view, columns, tags))
    name = "emission scores and the best path"
    drawn = figure(gutter, "".join(drawing), width=columns.width, height=height, name=name, aligned=True)
    about = (
        "A column has the scores <i>e</i>(tag) that the network gives a word, warm above zero and cool below. The line "
        "is the best path. Below it: the probability of its tag there, and the tag that is next."
    )
    notes = cut(len(view.words), len(columns), "words") + cut(len(view.tags), len(tags), "tags", "most probable")
    return paragraph(about) + notes + drawn


def _probabilities(view: TaggerView, column: int, columns: WordColumns, y: float) -> str:
    """The bar of the chosen tag's probability, and the next best tag with its own."""
    chosen, shares = int(view.path[column]), view.marginals[column]
    own, mid = float(shares[chosen]), columns.mid(column)
    title = escaped(f"{columns.words[column]}: P({view.tags[chosen]}) = {own:.4f}")
    place = f'x="{columns.lefts[column] + 1:.1f}" y="{y}" height="18" rx="2"'
    parts = [
        f'<rect class="nothing" {place} width="{columns.widths[column] - 4:.1f}"><title>{title}</title></rect>'
        f'<rect class="good" {place} width="{(columns.widths[column] - 4) * own:.1f}" fill-opacity=".4"'
        f' pointer-events="none"/><text class="small mid" x="{mid:.1f}" y="{y + 13}">{share(own)}</text>'
    ]
    second = next((tag for tag in np.argsort(-shares, kind="stable").tolist() if tag != chosen), None)
    if second is not None:
        name, probability = escaped(clipped(view.tags[second], 8)), share(float(shares[second]))
        parts.append(f'<text class="small mid" x="{mid:.1f}" y="{y + 35}">{name}</text>')
        parts.append(f'<text class="small mid faint" x="{mid:.1f}" y="{y + 48}">{probability}</text>')
    return "".join(parts)


def _drawn_path(view: TaggerView, columns: WordColumns, tags: Sequence[int]) -> str:
    """A frame around each cell of the path, and lines from frame to frame."""
    drawn, ends = [], []
    for column, (x, width) in enumerate(zip(columns.lefts, columns.widths, strict=False)):
        y = float(HEAD + ROW * tags.index(int(view.path[column])))
        drawn.append(frame(x=x, y=y, width=width))
        ends.append((x + 1, x + width - 3, y + ROW / 2))
    for (_, right, y), (left, _, y_next) in pairwise(ends):
        drawn.append(f'<path class="path" d="M{right:.1f} {y:.0f}L{left:.1f} {y_next:.0f}"/>')
    return "".join(drawn)


def _transitions(view: TaggerView, tags: Sequence[int]) -> str:
    """The table of transition scores, from the tag of a row to that of a column. The start is the first row, the end
    the last column.
    """
    assert view.tables is not None
    start, pairs, end = view.tables
    scores = np.full((len(tags) + 1, len(tags) + 1), np.nan)
    scores[0, :-1], scores[1:, :-1], scores[1:, -1] = start[tags], pairs[np.ix_(tags, tags)], end[tags]
    names = [view.tags[tag] for tag in tags]
    rows, ends, side, head = ["start", *names], [*names, "end"], 44.0, 78.0
    most, used = float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0)), _used(view, tags)
    drawing = [column_names(ends, side, head)]
    for row, column in zip(*np.nonzero(~np.isnan(scores)), strict=True):
        value, place = float(scores[row, column]), {"x": side * column, "y": head + ROW * row, "width": side}
        title = f"{rows[row]} → {ends[column]}\n{'illegal' if np.isinf(value) else plain(value, 4)}"
        drawn = never(title=title, **place) if np.isinf(value) else cell(value, most, title=title, **place)
        drawing.append(drawn + (frame(**place) if (row, column) in used else ""))
    width, height = side * len(ends) + 50, head + ROW * len(rows) + 4
    name = "transition scores"
    drawn = figure(row_names(rows, head), "".join(drawing), width=width, height=height, name=name)
    about = (
        "What a path gains when it goes from the tag of a row to the tag of a column. Crosses are illegal: no path "
        "goes there. Framed is where the best path goes."
    )
    return paragraph(about) + cut(len(view.tags), len(tags), "tags", "most probable") + drawn


def _used(view: TaggerView, tags: Sequence[int]) -> set[tuple[int, int]]:
    """The cells of the table of transitions that the best path uses."""
    rows = {tag: row for row, tag in enumerate(tags)}
    used = {(rows[a] + 1, rows[b]) for a, b in pairwise(view.path.tolist()) if a in rows and b in rows}
    first, last = int(view.path[0]), int(view.path[-1])
    return used | {(0, rows[first])} | ({(rows[last] + 1, len(tags))} if last in rows else set())


def _paths(view: TaggerView) -> str:
    """The best paths, and the words at which each differs from the best one."""
    rows = [
        f'<tr><td class="number">{rank}</td><td class="number" title="{path.probability:.6f}">{share(path.probability)}'
        f'</td><td><span class="share" style="width:{110 * path.probability:.1f}px"></span></td>'
        f'<td class="number" title="{plain(path.score, 6)}">{plain(path.score)}</td>'
        f'<td class="number">{plain(path.of_words)}</td><td class="number">{plain(path.score - path.of_words)}</td>'
        f"<td>{_changes(view, path)}</td></tr>"
        for rank, path in enumerate(view.paths, start=1)
    ]
    about = (
        "The score of a path is the sum of its emissions and transitions; its probability is the share of exp(score) "
        "in the sum over all paths."
    )
    return paragraph(about) + table(
        ["", "#probability", "", "#score", "#emissions", "#transitions", "what differs"], rows
    )


def _changes(view: TaggerView, path: TagPath) -> str:
    best = view.paths[0].tags
    places = np.flatnonzero(path.tags != best).tolist()
    if not places:
        return '<span class="faint">the path drawn above</span>'
    changes = [
        f'<span class="part" data-t="{place}"><bdi>{escaped(clipped(view.words[place]))}</bdi> '
        f"{escaped(view.tags[best[place]])} → <b>{escaped(view.tags[path.tags[place]])}</b></span>"
        for place in places[:MOST_CHANGES]
    ]
    more = f" and {len(places) - MOST_CHANGES:,} more" if len(places) > MOST_CHANGES else ""
    return "".join(changes) + more
