"""A text as it was written, with its words marked by labels or by weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ensue.inspection.markup import clipped, escaped
from ensue.inspection.page import cut

MOST_SHOWN = 2_000
"""The most words of a text that are shown."""
LONGEST_WORD, LONGEST_GAP = 300, 300
"""The most characters of a word, and of the text between two words, that are shown."""
STRONGEST = 80
"""The percentage of color in the strongest mark."""


class Mark(NamedTuple):
    """The words from `start` up to and without `end`, and their label."""

    start: int
    end: int
    label: str


class ShownText(NamedTuple):
    """A text, the places of its words in code points, and the marks on them in order."""

    text: str
    offsets: Sequence[tuple[int, int]]
    marks: Sequence[Mark] = ()


def labeled_text(shown: ShownText, colors: Mapping[str, str]) -> str:
    """The text with its marks as colored chips."""
    parts, place, word = [], 0, 0
    for mark in (mark for mark in shown.marks if mark.end <= MOST_SHOWN):
        outside, place = _words(shown, word, mark.start, place)
        start = shown.offsets[mark.start][0]
        inside, end = _words(shown, mark.start, mark.end, start)
        label = f"<sub>{escaped(mark.label)}</sub>"
        chip = f'<span class="chip" style="background:{colors[mark.label]}">{inside}{label}</span>'
        parts += [outside, _gap(shown, place, start), chip]
        word, place = mark.end, end
    last = min(len(shown.offsets), MOST_SHOWN)
    rest, place = _words(shown, word, last, place)
    return _block([*parts, rest], shown, place)


def _words(shown: ShownText, first: int, last: int, place: int) -> tuple[str, int]:
    """Some of the words with the text before each, from `place` on, and the end of the last one."""
    parts = []
    for word in range(first, last):
        start, end = shown.offsets[word]
        written = escaped(clipped(shown.text[start:end], LONGEST_WORD))
        parts.append(f'{_gap(shown, place, start)}<span class="w" data-t="{word}">{written}</span>')
        place = end
    return "".join(parts), place


class Weight(NamedTuple):
    """The strength of a word's mark, from 0 to 1, its kind (`for`, `against`, `weight`), and its title."""

    strength: float
    kind: str
    title: str
    is_new: bool = False


def weighted_text(shown: ShownText, weights: Sequence[Weight], *, key: str = "") -> str:
    """The text with each word on a color as strong as its weight."""
    parts, place = [], 0
    for word, ((start, end), weight) in enumerate(zip(shown.offsets[:MOST_SHOWN], weights, strict=False)):
        kind = f"w {weight.kind}" + (" new" if weight.is_new else "")
        place_and_look = f'data-t="{key}{word}" style="--s:{STRONGEST * weight.strength:.0f}%"'
        parts.append(
            f'{_gap(shown, place, start)}<span class="{kind}" {place_and_look} title="{escaped(weight.title)}">'
            f"{escaped(clipped(shown.text[start:end], LONGEST_WORD))}</span>"
        )
        place = end
    return _block(parts, shown, place)


def _gap(shown: ShownText, start: int, end: int) -> str:
    """The text between two words. A long text that is not read is cut."""
    if end - start <= LONGEST_GAP:
        return escaped(shown.text[start:end])
    half = LONGEST_GAP // 2
    return f"{escaped(shown.text[start : start + half])} […] {escaped(shown.text[end - half : end])}"


def _block(parts: Sequence[str], shown: ShownText, place: int) -> str:
    count = len(shown.offsets)
    if count > MOST_SHOWN:
        return f'{cut(count, MOST_SHOWN, "words")}<div class="text" dir="auto">{"".join(parts)} …</div>'
    return f'<div class="text" dir="auto">{"".join(parts)}{_gap(shown, place, len(shown.text))}</div>'
