"""The sections of a page for a `TaggerView`: the sentence, the scores, the paths. `words_page` has
those of the words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ensue.inspection.drawing import WordColumns
from ensue.inspection.encoder_page import Seen, encoder_sections
from ensue.inspection.page import Section, cut
from ensue.inspection.texts import ShownText, labeled_text
from ensue.tasks.labeling.view import TaggerView, TagPath, TagsView
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
    sections = [
        Section("The sentence and its labels", "inspection/plain.html", {"shown": labeled_text(text, colors)}),
        *path_sections(view, columns, view.words, has_spans=has_spans),
        words_section(view),
    ]
    if view.characters:
        sections.append(letters_section(view))
    return [*sections, *encoder_sections([Seen(columns, view.traces, view.attention)])]


def path_sections(
    view: TagsView, columns: WordColumns, names: Sequence[str], *, has_spans: bool, unit: str = "word"
) -> list[Section]:
    """Emissions, transitions, and the best paths. `columns` are the places of the first of all `names`."""
    tags = drawn_tags(view, len(columns), has_spans=has_spans)
    lattice = _lattice(view, columns, tags, unit)
    sections = [Section("Emission scores and the best path", "tasks/labeling/lattice.html", lattice)]
    if view.tables is not None:
        sections.append(Section("Transition scores", "tasks/labeling/transitions.html", _transitions(view, tags)))
        sections.append(Section("The best paths", "tasks/labeling/paths.html", {"paths": _paths(view, names)}))
    return sections


def drawn_tags(view: TagsView, num_words: int, *, has_spans: bool) -> list[int]:
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


def _lattice(view: TagsView, columns: WordColumns, tags: Sequence[int], unit: str) -> dict[str, Any]:
    """Tags × words with the best path, and below them the probabilities of the tag and of the next best one."""
    count, emissions = len(columns), view.emissions[: len(columns)][:, tags]
    return {
        "columns": columns,
        "unit": unit,
        "names": [view.tags[tag] for tag in tags],
        "emissions": emissions.tolist(),
        "marginals": view.marginals[:count][:, tags].tolist(),
        "most": float(np.abs(emissions).max()),
        "rows": [tags.index(tag) for tag in view.path[:count].tolist()],
        "next": [_next(view, column) for column in range(count)],
        "notes": [cut(len(view.path), count, f"{unit}s"), cut(len(view.tags), len(tags), "tags", "most probable")],
    }


def _next(view: TagsView, column: int) -> tuple[str, float] | None:
    """The tag that is most probable after the chosen one, with its probability."""
    shares = view.marginals[column]
    order = (tag for tag in np.argsort(-shares, kind="stable").tolist() if tag != view.path[column])
    second = next(order, None)
    return None if second is None else (view.tags[second], float(shares[second]))


def _transitions(view: TagsView, tags: Sequence[int]) -> dict[str, Any]:
    """The table of transition scores, from the tag of a row to that of a column. The start is the first row, the end
    the last column; no path starts with the end.
    """
    assert view.tables is not None
    start, pairs, end = view.tables
    scores = np.full((len(tags) + 1, len(tags) + 1), np.nan)
    scores[0, :-1], scores[1:, :-1], scores[1:, -1] = start[tags], pairs[np.ix_(tags, tags)], end[tags]
    names = [view.tags[tag] for tag in tags]
    return {
        "rows": ["start", *names],
        "ends": [*names, "end"],
        "cells": [
            (row, column, None if np.isinf(scores[row, column]) else float(scores[row, column]))
            for row, column in np.argwhere(~np.isnan(scores)).tolist()
        ],
        "most": float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0)),
        "used": _used(view, tags),
        "note": cut(len(view.tags), len(tags), "tags", "most probable"),
    }


def _used(view: TagsView, tags: Sequence[int]) -> set[tuple[int, int]]:
    """The cells of the table of transitions that the best path uses."""
    rows = {tag: row for row, tag in enumerate(tags)}
    used = {(rows[a] + 1, rows[b]) for a, b in pairwise(view.path.tolist()) if a in rows and b in rows}
    first, last = int(view.path[0]), int(view.path[-1])
    return used | {(0, rows[first])} | ({(rows[last] + 1, len(tags))} if last in rows else set())


def _paths(view: TagsView, names: Sequence[str]) -> list[tuple[TagPath, list[tuple[int, str, str, str]], int]]:
    """The best paths, each with the words at which it differs from the best one, and how many more there are."""
    return [(path, changes[:MOST_CHANGES], len(changes[MOST_CHANGES:])) for path in view.paths
            for changes in [_changes(view, names, path)]]  # fmt: skip


def _changes(view: TagsView, names: Sequence[str], path: TagPath) -> list[tuple[int, str, str, str]]:
    """The place and the word of each difference, the best path's tag, and this one's."""
    best = view.paths[0].tags
    return [
        (place, names[place], view.tags[best[place]], view.tags[path.tags[place]])
        for place in np.flatnonzero(path.tags != best).tolist()
    ]
