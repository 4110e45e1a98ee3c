"""Texts on pages, with their original spacing, and with words highlighted by labels or weights."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from markupsafe import Markup

from ensue.inspection.page import MAX_WORD_CHARACTERS, clip, note_cut, render

MAX_SHOWN_WORDS = 2_000
"""The maximum number of words of a text on a page."""
MAX_GAP_CHARACTERS = 300
"""The maximum length of text between two words on a page."""
MAX_COLOR_PERCENT = 80
"""The percentage of color in the strongest highlight."""


class Mark(NamedTuple):
    """A label of the words from `start` to `end` (exclusive)."""

    start: int
    end: int
    label: str


class ShownText(NamedTuple):
    """A text, the offsets of its words in code points, and marks in the order of the words."""

    text: str
    offsets: Sequence[tuple[int, int]]
    marks: Sequence[Mark] = ()


class Word(NamedTuple):
    """A word with the text `before` it, and its highlight; without a highlight the strength is 0 and the kind ""."""

    before: str
    text: str
    strength: float = 0.0
    kind: str = ""
    title: str = ""


class Weight(NamedTuple):
    """The strength (0 to 1), kind (`for`, `against`, `weight`) and tooltip of a highlight; new words are underlined."""

    strength: float
    kind: str
    title: str
    is_new: bool = False


def labeled_text(shown: ShownText, colors: Mapping[str, str]) -> Markup:
    """Return the text with its marks as colored spans."""
    words = list(enumerate(_words(shown)))
    pieces: list[tuple[str | None, list[tuple[int, Word]]]] = []
    end = 0
    for mark in (mark for mark in shown.marks if mark.end <= len(words)):
        pieces += [(None, words[end : mark.start]), (mark.label, words[mark.start : mark.end])]
        end = mark.end
    return _draw(shown, [*pieces, (None, words[end:])], colors=colors)


def weighted_text(shown: ShownText, weights: Sequence[Weight], *, key: str = "") -> Markup:
    """Return the text, with the strength of each word's background color by the weight of the word."""
    words = [
        word._replace(strength=MAX_COLOR_PERCENT * strength, kind=f" {kind}{' new' if is_new else ''}", title=title)
        for word, (strength, kind, title, is_new) in zip(_words(shown), weights, strict=False)
    ]
    return _draw(shown, [(None, list(enumerate(words)))], key=key)


def _words(shown: ShownText) -> list[Word]:
    ends = [0, *(end for _, end in shown.offsets)]
    return [
        Word(_gap(shown, ends[index], start), clip(shown.text[start:end], MAX_WORD_CHARACTERS))
        for index, (start, end) in enumerate(shown.offsets[:MAX_SHOWN_WORDS])
    ]


def _gap(shown: ShownText, start: int, end: int) -> str:
    """Return the text between two words, without the middle of a long text."""
    if end - start <= MAX_GAP_CHARACTERS:
        return shown.text[start:end]
    half = MAX_GAP_CHARACTERS // 2
    return f"{shown.text[start : start + half]} […] {shown.text[end - half : end]}"


def _draw(
    shown: ShownText, pieces: Sequence[tuple[str | None, list[tuple[int, Word]]]], *, key: str = "",
    colors: Mapping[str, str] = MappingProxyType({}),
) -> Markup:  # fmt: skip
    count = len(shown.offsets)
    end = shown.offsets[-1][1] if count else 0
    rest = " …" if count > MAX_SHOWN_WORDS else _gap(shown, end, len(shown.text))
    note = note_cut(count, min(count, MAX_SHOWN_WORDS), "words")
    return render("inspection/texts.html", pieces=pieces, colors=colors, key=key, rest=rest, note=note)
