"""Spans of characters on the words of a splitter.

A splitter cuts a text without knowing its spans, since nobody knows them in use. A span that begins or ends inside of a
word is learned as the words that it touches, and no prediction can be equal to it: scores count it as a miss.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from ensue.data.records.json_objects import ClippedSpan, TextSpan
from ensue.text.schemes import Span
from ensue.text.tokens import Token

HIDDEN = -1
"""The start and end of a span that the labels do not show, since its words have another one."""


class PlacedSpan(NamedTuple):
    """A span of characters, the words that it touches, and whether it begins and ends where words do."""

    source: TextSpan
    words: Span
    is_aligned: bool


def place_spans(spans: Sequence[TextSpan], words: Sequence[Token], *, nested: bool) -> list[PlacedSpan]:
    """Return the words of each span. Of spans that touch a word, without `nested`, one that is aligned hides others,
    then the first one. Raises ValueError for a span of blanks.
    """
    placed = [_touched(span, words) for span in spans]
    if all(span.is_aligned for span in placed):
        return placed
    taken = {item for span in placed if span.is_aligned for item in _items(span.words, nested)}
    for number, span in enumerate(placed):
        items = _items(span.words, nested)
        if not span.is_aligned and not taken.isdisjoint(items):
            placed[number] = span._replace(words=Span(span.words.label, HIDDEN, HIDDEN))
        taken.update(items)
    return placed


def _items(span: Span, nested: bool) -> Sequence[object]:
    """The words, of which no other span has one, or with `nested` the span, which is there once."""
    return (span,) if nested else range(span.start, span.end)


def _touched(span: TextSpan, words: Sequence[Token]) -> PlacedSpan:
    first = bisect_right(words, span.start, key=lambda word: word.end)
    stop = bisect_left(words, span.end, lo=first, key=lambda word: word.start)
    if first == stop:
        raise ValueError(f"the span {span} holds nothing but blanks")
    is_aligned = words[first].start >= span.start and words[stop - 1].end <= span.end
    return PlacedSpan(span, Span(span.label, first, stop), is_aligned and not isinstance(span, ClippedSpan))
