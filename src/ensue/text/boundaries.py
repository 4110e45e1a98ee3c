"""Where a text may be cut: between parts that are tokenized by themselves, and between characters as readers see them.

Blanks are the six ASCII ones. `\\x85`, `\\u2028` and similar characters are ordinary ones: they end no line here.

Between characters, the rules of Unicode's grapheme clusters (UAX 29) hold that matter between two tokens: combining
marks, joiners, variation selectors, skin tones, tags and flags. Syllables of Hangul need no rule, since no splitter
cuts inside them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

BLANKS = " \t\n\r\f\v"
_BOUNDARY = re.compile(r"\S(?=[ \t\n\r])")
"""WordPiece drops the other two blanks, so that a word goes on behind them."""


def last_boundary(text: str) -> int | None:
    """The last place between a character that is not white space and ` `, `\\t`, `\\n` or `\\r`; None if there is none.

    No tokenizer of this package makes a token across such a place. White space is that of Unicode, since the subword
    splitter keeps runs of it together.
    """
    width = 256
    while True:  # the first width is nearly always enough
        begin = max(0, len(text) - width)
        if places := [match.end() for match in _BOUNDARY.finditer(text, begin)]:
            return places[-1]
        if begin == 0:
            return None
        width *= 16


def cut_at_boundaries(chunks: Iterable[str], *, least: int = 0, longest: int = 0) -> Iterator[str]:
    """The text in pieces of `least` characters or more that end at boundaries. More than `longest` characters without a
    boundary are a piece, too.
    """
    rest = ""
    for chunk in chunks:
        rest += chunk
        if len(rest) >= least and (cut := last_boundary(rest) or (len(rest) > longest) * len(rest)):
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


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
