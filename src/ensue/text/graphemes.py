"""Where a text may be cut without splitting what a reader sees as one character.

These are the rules of Unicode's grapheme clusters (UAX 29) that matter between two tokens: combining marks, joiners,
variation selectors, skin tones, tags and flags. Syllables of Hangul need no rule, since no splitter cuts inside them.
"""

from __future__ import annotations

import unicodedata

_JOINER = "\u200d"
_CLINGING = frozenset({_JOINER, "\u200c", *map(chr, range(0x1F3FB, 0x1F400)), *map(chr, range(0xE0020, 0xE0080))})
_MARKS = ("Mn", "Me", "Mc")


def is_boundary(text: str, place: int, start: int = 0) -> bool:
    """Whether `place`, inside of `text`, is between two clusters. `start` is an earlier place that is."""
    before, behind = text[place - 1], text[place]
    if behind < "\u0300":
        return before != _JOINER
    if behind in _CLINGING or before == _JOINER or unicodedata.category(behind) in _MARKS:
        return False
    if not (_is_half_of_flag(before) and _is_half_of_flag(behind)):
        return True
    run = place
    while run > start and _is_half_of_flag(text[run - 1]):
        run -= 1
    return (place - run) % 2 == 0


def _is_half_of_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
