"""Running text to words with their places in it.

Offsets count code points, as in Python: `text[token.start : token.end] == token.text`. No splitter cuts inside a
grapheme: an emoji with its joiners and skin tone, a flag, or a letter with its combining marks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from ensue.errors import RecipeError, nearest
from ensue.text import treebank, words
from ensue.text.boundaries import is_boundary

Span = tuple[int, int]
Word = TypeVar("Word")


class Token(NamedTuple):
    """A word and its place in the text, in code points; `end` is not included."""

    text: str
    start: int
    end: int


def tokens(text: str, splitter: str = "simple") -> list[Token]:
    """The words of `text` in order. Raises RecipeError for a splitter that is not in `SPLITTERS`."""
    if splitter not in SPLITTERS:
        known = ", ".join(SPLITTERS)
        raise RecipeError(f'unknown splitter "{splitter}"; expected one of {known}{nearest(splitter, SPLITTERS)}')
    spans = SPLITTERS[splitter](text)
    if not text.isascii():
        spans = _between_graphemes(text, spans)
    return [Token(text[start:end], start, end) for start, end in spans]


def words_in(text: str, splitter: str, *, blanks: str | None = None) -> list[str]:
    """The words of a text; with `blanks`, each with what is between it and the word before, the first with `blanks`."""
    found = tokens(text, splitter)
    if blanks is None:
        return [token.text for token in found]
    starts = [token.end for token in found[:-1]]
    first = [blanks + found[0].text] if found else []
    return first + [text[start : token.end] for start, token in zip(starts, found[1:], strict=True)]


def shortened(words: list[Word], most: int, keep: str) -> list[Word]:
    """At most so many words of a text (0: all): those at its "start", at its "end", or half at "both"."""
    if not most or len(words) <= most:
        return words
    first = {"start": most, "end": 0, "both": most // 2}[keep]
    return words[:first] + words[len(words) - (most - first) :]


def _matches(expression: str) -> Callable[[str], Iterator[Span]]:
    find = re.compile(expression).finditer
    return lambda text: (match.span() for match in find(text) if match[0] != "\n")


EXPRESSIONS: dict[str, tuple[str, bool]] = {
    "whitespace": (words.SPLITTERS["whitespace"], False),
    "simple": (words.SPLITTERS["simple"], False),
    "treebank": (treebank.EXPRESSION, True),
    "treebank-1": (treebank.EXPRESSION, True),
    "characters": (r"\S", False),
}
"""For each splitter the regular expression of a word or a line end, and whether it takes no notice of case."""
SPLITTERS: dict[str, Callable[[str], Iterable[Span]]] = {
    **{name: _matches(expression) for name, (expression, _) in EXPRESSIONS.items()},
    "treebank": treebank.spans,
    "treebank-1": treebank.spans_between_marks,
}
"""The splitters. "whitespace" and "simple" are those of `ensue.text.words`. "simple" never cuts a run of letters; for
Chinese, which has no blanks, take "characters": every character that is not white space is a token. "treebank" is for
English (`ensue.text.treebank`). "treebank-1" is that of runs of an earlier ensue, which cut words at combining marks.
"""


def _between_graphemes(text: str, spans: Iterable[Span]) -> list[Span]:
    """The spans without cuts inside a grapheme: such a cut moves to the grapheme's end. Empty spans are left out."""
    whole: list[Span] = []
    for start, end in spans:
        cut = start
        if whole and whole[-1][1] == start:
            while cut < end and not is_boundary(text, cut, whole[-1][0]):
                cut += 1
            whole[-1] = (whole[-1][0], cut)
        if cut < end:
            whole.append((cut, end))
    return whole
