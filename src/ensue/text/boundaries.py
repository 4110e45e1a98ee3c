"""Boundaries of text: between chunks that can be tokenized separately, and between grapheme clusters.

A blank is one of the six ASCII white-space characters. Characters such as `\\x85` and `\\u2028` do not end a line.

Grapheme clusters (UAX 29) are implemented for combining marks, joiners, variation selectors, skin tones, tags and
flags. Hangul syllables need no rule, because no splitter cuts inside them.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator

BLANKS = " \t\n\r\f\v"
_BOUNDARY = re.compile(r"\S(?=[ \t\n\r])")
"""`\\f` and `\\v` are not boundaries, because WordPiece drops them inside a word."""
_MIN_SEARCHED_CHARACTERS = 256
"""The length of the suffix that is searched first. It nearly always contains a boundary."""


def last_boundary(text: str) -> int | None:
    """Return the index of the last ` `, `\\t`, `\\n` or `\\r` that follows a non-space character; None without one.

    No token spans this index, except with `PublishedTokenizer`. Unicode white space also counts as space, because the
    subword splitter does not divide runs of white space.
    """
    width = _MIN_SEARCHED_CHARACTERS
    while True:
        begin = max(0, len(text) - width)
        if ends := [match.end() for match in _BOUNDARY.finditer(text, begin)]:
            return ends[-1]
        if begin == 0:
            return None
        width *= 16


def cut_at_boundaries(chunks: Iterable[str], *, min_length: int = 0, max_length: int = 0) -> Iterator[str]:
    """Yield the text of `chunks`, which may end anywhere, in chunks that end at boundaries.

    Text is collected until it has at least `min_length` characters, and then yielded up to its last boundary. Text
    without a boundary is collected until it also has more than `max_length` characters, and then yielded.
    """
    pending = ""
    for chunk in chunks:
        pending += chunk
        if len(pending) >= min_length:
            end = last_boundary(pending) or (len(pending) if len(pending) > max_length else 0)
            if end:
                yield pending[:end]
                pending = pending[end:]
    if pending:
        yield pending


_JOINER = "\u200d"
_EXTENDING = frozenset({_JOINER, "\u200c", *map(chr, range(0x1F3FB, 0x1F400)), *map(chr, range(0xE0020, 0xE0080))})
_MARKS = ("Mn", "Me", "Mc")


def is_boundary(text: str, index: int, start: int = 0) -> bool:
    """Return whether a grapheme cluster starts at `index`. Another cluster must start at the lower index `start`."""
    before, after = text[index - 1], text[index]
    if after < "\u0300":  # the first combining mark
        return before != _JOINER
    if after in _EXTENDING or before == _JOINER or unicodedata.category(after) in _MARKS:
        return False
    if not (_is_regional_indicator(before) and _is_regional_indicator(after)):
        return True
    begin = index
    while begin > start and _is_regional_indicator(text[begin - 1]):
        begin -= 1
    return (index - begin) % 2 == 0  # two indicators are a flag


def _is_regional_indicator(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
