"""The sections of a page for the words of a `TaggerView`: their parts and letters, and the effects of these."""

from __future__ import annotations

import numpy as np

from ensue.inspection.markup import visible
from ensue.inspection.page import Section, cut
from ensue.tasks.labeling.view import TaggerView

MOST_DRAWN = 24
"""The most distinct words whose letters are drawn."""
NEXT_BEST = 3
"""The number of tags that are named for a word."""


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
