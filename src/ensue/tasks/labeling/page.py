"""A sentence in a tagger as a page: the sentence, the scores, the paths, the words with their parts and letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ensue.data.sentences.sentence import Surface
from ensue.inspection.colors import color_of
from ensue.inspection.drawing import WordColumns
from ensue.inspection.encoder_page import Seen, encoder_sections
from ensue.inspection.features import ReadWords
from ensue.inspection.markup import ansi, clipped, visible
from ensue.inspection.page import TITLE, Inspection, Section, cut
from ensue.inspection.texts import Mark, ShownText, labeled_text
from ensue.models.tagger import Tagger
from ensue.tasks.labeling.tagged_sentence import TaggedSentence
from ensue.tasks.labeling.view import TaggerView, TagPath, TagsView, view_tagger
from ensue.text.labels import Labels
from ensue.text.schemes import OUTSIDE, layers, spans, tags_of

MOST_WORDS = 60
"""The most words that are drawn."""
MOST_TAGS = 25
"""The most tags that are drawn, unless the path has more."""
MOST_CHANGES = 12
"""The most words that are named for a path, at which it differs from the best one."""
PREFIXES = "BIMELSUW"
MOST_DRAWN = 24
"""The most distinct words whose letters are drawn."""
NEXT_BEST = 3
"""The number of tags that are named for a word."""


def inspect_sentence(
    model: Tagger, read: ReadWords, labels: Labels, surface: Surface, facts: Mapping[str, str]
) -> Inspection:
    """The page of a tagger with a sentence as it was read; `facts` are those of the model."""
    view = view_tagger(model, read, labels.tags.symbols, num_words=MOST_WORDS)
    shown = _labeled(labels, view, surface)
    colors = {mark.label: color_of(mark.label) for mark in shown.marks}
    sections = tagger_sections(view, shown, colors=colors, has_spans=labels.has_spans)
    return Inspection(clipped(shown.text, TITLE), view, facts, sections)


def _labeled(labels: Labels, view: TaggerView, surface: Surface) -> ShownText:
    """The sentence with its labels in the scheme of the training data; for spans only the spans."""
    names = labels.decode(view.path.tolist())
    marks = [Mark(place, place + 1, label) for place, label in enumerate(names)]
    if labels.has_spans:
        marks = [Mark(span.start, span.end, span.label) for span in spans(names)]
    return ShownText(surface.text, surface.offsets, marks)


def tagger_sections(view: TaggerView, text: ShownText, *, colors: Mapping[str, str], has_spans: bool) -> list[Section]:
    """All sections. `text` has labels in the training data's scheme; with `has_spans` the tags write spans."""
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
    """The tags to draw: those of the path, then the most probable ones. Tags of a class stay together."""
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
    """Transition scores from a row's tag to a column's; first row: the start, last column: the end."""
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
    """The best paths, each with its first differences from the best one (place, word, both tags), and how many more."""
    found, best = [], view.paths[0].tags
    for path in view.paths:
        places = np.flatnonzero(path.tags != best).tolist()
        changes = [(place, names[place], view.tags[best[place]], view.tags[path.tags[place]]) for place in places]
        found.append((path, changes[:MOST_CHANGES], len(changes[MOST_CHANGES:])))
    return found


def words_section(view: TaggerView) -> Section:
    """A row for each word: its best tags, and its parts."""
    shown = {
        "kinds": list(dict.fromkeys(part.kind for parts in view.parts for part in parts)),
        "most": max(abs(effect.emission) for effects in view.effects for effect in effects),
        "longest": max(part.norm for parts in view.parts for part in parts) or 1.0,
        "rows": [
            (view.words[place], _best_tags(view, place), int(view.path[place]), list(zip(*both, strict=True)))
            for place, both in enumerate(zip(view.parts, view.effects, strict=False))
        ],
        "tags": view.tags,
        "note": cut(len(view.words), len(view.effects), "words"),
    }
    return Section("Word by word", "tasks/labeling/words.html", shown)


def _best_tags(view: TaggerView, place: int) -> list[tuple[str, float]]:
    best = np.argsort(-view.marginals[place], kind="stable")[:NEXT_BEST].tolist()
    return [(view.tags[tag], float(view.marginals[place, tag])) for tag in best]


def letters_section(view: TaggerView) -> Section:
    """The values of the character layer in each distinct word."""
    found = {
        word: (letters, effects)
        for word, letters, effects in zip(view.words, view.characters, view.letters, strict=False)
        if letters.traces
    }
    chosen = list(found.values())[:MOST_DRAWN]
    shown = {
        "counts": any("maxima" in letters.traces for letters, _ in found.values()),
        "most": max((abs(effect.emission) for _, effects in chosen for effect in effects), default=0.0),
        "words": [(word.letters, list(map(visible, word.letters)), word.traces, effects) for word, effects in chosen],
        "note": cut(len(set(view.words)), len(chosen), "different words"),
    }
    return Section("Letter by letter", "tasks/labeling/letters.html", shown)


def aligned(tagged: TaggedSentence, width: int | None = None) -> str:
    """Words with their labels below, as wide as the terminal; overlapping spans have a line for each layer."""
    console = Console(highlight=False)
    room = width or console.width
    rows = [tagged.labels]
    if tagged.overlap and (names := layers(tagged.labels)):
        rows = [[tags_of(label).get(name, OUTSIDE) for label in tagged.labels] for name in names]
    lines: list[str] = []
    shown, used = [Text() for _ in range(1 + len(rows))], 0
    for word, *labels in zip(tagged, *rows, strict=True):
        size = max(map(cell_len, (word.text, *labels))) + 2
        if used and used + size > room:
            lines += [ansi(console, text) for text in shown]
            shown, used = [Text() for _ in shown], 0
        shown[0].append(word.text + " " * (size - cell_len(word.text)))
        for below, label in zip(shown[1:], labels, strict=True):
            style = "dim" if label == "O" else f"black on {color_of(label)}"
            below.append(label, style=style).append(" " * (size - cell_len(label)))
        used += size
    return "\n".join([*lines, *(ansi(console, text) for text in shown)]) + "\n"
