"""The sections of a page for the words of a `TaggerView`: their parts and letters, and the effects of these."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ensue.inspection.characters import CharacterView
from ensue.inspection.drawing import GUTTER, ROW, bars, cell, figure
from ensue.inspection.features import Part
from ensue.inspection.markup import clipped, escaped, share, signed, visible
from ensue.inspection.page import Section, cut, paragraph, table
from ensue.tasks.labeling.view import Effect, TaggerView

MOST_DRAWN = 24
"""The most distinct words whose letters are drawn."""
NEXT_BEST = 3
"""The number of tags that are named for a word."""
LETTER = 26.0
"""Pixels of a letter."""


def words_section(view: TaggerView) -> Section:
    """A row for each word: its best tags, and its parts."""
    kinds = list(dict.fromkeys(part.kind for parts in view.parts for part in parts))
    most = max(abs(effect.emission) for effects in view.effects for effect in effects)
    longest = max(part.norm for parts in view.parts for part in parts) or 1.0
    rows = []
    for place, (parts, effects) in enumerate(zip(view.parts, view.effects, strict=False)):
        drawn = [
            (part.kind, _part(view, part, effect, int(view.path[place]), most=most, longest=longest))
            for part, effect in zip(parts, effects, strict=True)
        ]
        cells = "".join(f"<td>{''.join(part for kind, part in drawn if kind == column)}</td>" for column in kinds)
        rows.append(
            f'<tr data-t="{place}"><td><b><bdi>{escaped(clipped(view.words[place], 24))}</bdi></b></td>'
            f'<td class="faint">{_best_tags(view, place)}</td>{cells}</tr>'
        )
    about = (
        "What the model knows of a word, part by part, and what each part does: the number is by how much the emission "
        "score of the word’s tag falls when the part is blanked (read as unknown, or as no letters at all) and the "
        "whole sentence is read again. Warm parts speak for the tag, cool ones against it; an arrow shows the tag that "
        "the word would have without the part. Parts in a dashed frame are unknown. The line on top is the length of "
        "the vector."
    )
    note = cut(len(view.words), len(view.effects), "words")
    head = ["", "best tags", *(escaped(kind) for kind in kinds)]
    return Section("Word by word", paragraph(about) + note + table(head, rows))


def _best_tags(view: TaggerView, place: int) -> str:
    best = np.argsort(-view.marginals[place], kind="stable")[:NEXT_BEST].tolist()
    return " ".join(
        f'<span class="tag">{escaped(view.tags[tag])} {share(float(view.marginals[place, tag]))}</span>' for tag in best
    )


def _part(view: TaggerView, part: Part, effect: Effect, tag: int, *, most: float, longest: float) -> str:
    """A part of a word as a small box."""
    name, known = view.tags[tag], "" if part.is_known else " (unknown)"
    title = (
        f"{part.kind} {clipped(part.text, 60)}{known}: norm {part.norm:.4f}\nwithout it: emission of {name} "
        f"{signed(-effect.emission, 4)}, P({name}) = {effect.probability:.4f}, tag {view.tags[effect.tag]}"
    )
    kind = f"part {'for' if effect.emission > 0 else 'against'}" + ("" if part.is_known else " unread")
    strength = 75 * abs(effect.emission) / most if most else 0.0
    does = f" <small>{signed(effect.emission)}</small>" if part.is_known or round(effect.emission, 2) else ""
    switch = f" → <b>{escaped(view.tags[effect.tag])}</b>" if effect.tag != tag else ""
    return (
        f'<span class="{kind}" style="--s:{strength:.0f}%" title="{escaped(title)}">'
        f'<u style="width:{100 * part.norm / longest:.0f}%"></u><bdi>{escaped(clipped(part.text, 18))}</bdi>'
        f"{does}{switch}</span>"
    )


def letters_section(view: TaggerView) -> Section:
    """The values of the character layer in each distinct word."""
    found = {
        word: (letters, effects)
        for word, letters, effects in zip(view.words, view.characters, view.letters, strict=False)
        if letters.traces
    }
    chosen = list(found.values())[:MOST_DRAWN]
    most = max((abs(effect.emission) for _, effects in chosen for effect in effects), default=0.0)
    drawn = [_letters(*each, most=most) for each in chosen]
    counts = any("maxima" in letters.traces for letters, _ in found.values())
    how = (
        "A bar counts the filters whose largest response over the word is at the letter."
        if counts
        else "A bar is how far the letter moves the state of the LSTM that reads the word in that direction."
    )
    about = f"{how} Below: by how much the emission score of the word’s tag falls when the letter is read as unknown."
    note = cut(len(set(view.words)), len(drawn), "different words")
    return Section("Letter by letter", paragraph(about) + note + f'<div class="many">{"".join(drawn)}</div>')


def _letters(found: CharacterView, effects: Sequence[Effect], *, most: float) -> str:
    """A word's letters in a row, with a row of bars for each trace, and the effect of each letter."""
    letters = [visible(letter) for letter in found.letters]
    foot = 22 + 36 * len(found.traces)
    names = [(name, 22 + 36 * row + 20) for row, name in enumerate(found.traces)]
    gutter = [
        f'<text class="end small faint" x="{GUTTER - 8}" y="{y}">{escaped(name)}</text>'
        for name, y in [*names, ("emission", foot + 15)]
    ]
    drawing = [
        f'<text class="{"small" if len(letter) > 2 else "word"} mid" x="{LETTER * (column + 0.5):.0f}" y="15">'
        f"{escaped(letter)}</text>"
        for column, letter in enumerate(letters)
    ]
    for row, (name, values) in enumerate(found.traces.items()):
        drawing.append(bars(values, letters, name=name, place=row, top=22 + 36 * row, side=LETTER))
    for column, (letter, effect) in enumerate(zip(letters, effects, strict=True)):
        title = f"{letter} read as unknown: emission {signed(-effect.emission, 4)}, P = {effect.probability:.4f}"
        drawing.append(cell(effect.emission, most, x=LETTER * column + 1, y=foot, width=LETTER + 1, title=title))
    name, width = f"letters of {found.letters}", LETTER * len(letters) + 2
    return figure("".join(gutter), "".join(drawing), width=width, height=foot + ROW, name=name)
