"""A text as it was written, with its words marked by labels or by weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from markupsafe import Markup

from ensue.inspection.markup import LONGEST_WORD, clipped, drawn
from ensue.inspection.page import cut

MOST_SHOWN = 2_000
"""The most words of a text that are shown."""
LONGEST_GAP = 300
"""The most characters of the text between two words that are shown."""
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


class Word(NamedTuple):
    """A word of a text, with the text `before` it; without a mark its strength is 0 and its kind ""."""

    before: str
    text: str
    strength: float = 0.0
    kind: str = ""
    title: str = ""


class Weight(NamedTuple):
    """The strength of a word's mark, from 0 to 1, its kind (`for`, `against`, `weight`), and its title."""

    strength: float
    kind: str
    title: str
    is_new: bool = False


def labeled_text(shown: ShownText, colors: Mapping[str, str]) -> Markup:
    """The text with its marks as colored chips."""
    words, place = _words(shown), 0
    pieces: list[tuple[str | None, list[tuple[int, Word]]]] = []
    for mark in (mark for mark in shown.marks if mark.end <= len(words)):
        pieces += [(None, _numbered(words, place, mark.start)), (mark.label, _numbered(words, mark.start, mark.end))]
        place = mark.end
    return _drawn(shown, [*pieces, (None, _numbered(words, place, len(words)))], colors=colors)


def weighted_text(shown: ShownText, weights: Sequence[Weight], *, key: str = "") -> Markup:
    """The text with each word on a color as strong as its weight."""
    words = [
        word._replace(strength=STRONGEST * strength, kind=f" {kind}{' new' if is_new else ''}", title=title)
        for word, (strength, kind, title, is_new) in zip(_words(shown), weights, strict=False)
    ]
    return _drawn(shown, [(None, _numbered(words, 0, len(words)))], key=key)


def _words(shown: ShownText) -> list[Word]:
    """The words that are shown, each with the text before it."""
    ends = [0, *(end for _, end in shown.offsets)]
    return [
        Word(_gap(shown, ends[place], start), clipped(shown.text[start:end], LONGEST_WORD))
        for place, (start, end) in enumerate(shown.offsets[:MOST_SHOWN])
    ]


def _numbered(words: Sequence[Word], first: int, last: int) -> list[tuple[int, Word]]:
    return [(place, words[place]) for place in range(first, last)]


def _gap(shown: ShownText, start: int, end: int) -> str:
    """The text between two words. A long text that is not read is cut."""
    if end - start <= LONGEST_GAP:
        return shown.text[start:end]
    half = LONGEST_GAP // 2
    return f"{shown.text[start : start + half]} […] {shown.text[end - half : end]}"


def _drawn(
    shown: ShownText, pieces: Sequence[tuple[str | None, list[tuple[int, Word]]]], *, key: str = "",
    colors: Mapping[str, str] = MappingProxyType({}),
) -> Markup:  # fmt: skip
    count = len(shown.offsets)
    end = shown.offsets[-1][1] if count else 0
    rest = " …" if count > MOST_SHOWN else _gap(shown, end, len(shown.text))
    note = cut(count, min(count, MOST_SHOWN), "words")
    return drawn("inspection/texts.html", pieces=pieces, colors=colors, key=key, rest=rest, note=note)
