"""Words as they are written in a line: a blank between two, but none before a closing mark or behind an opening one."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

CLOSING = frozenset(".,;:!?…。、，．！？：；।॥،؛؟۔")
OPENING = frozenset("¿¡")
QUOTES = frozenset('"“”„«»')
"""Which of them open depends on the language. So the first one of a line opens, the second one closes, and so on."""


class WrittenWords:
    """Writes one word after another; "\\n" ends a line. Without `joins_marks` there is a blank between any two.

    The splitter "simple" finds the same words in the text again.
    """

    def __init__(self, *, joins_marks: bool) -> None:
        self.joins_marks = joins_marks
        self._blank, self._in_quotes = "", False

    def feed(self, word: str) -> str:
        """The word, behind the blank that stands before it."""
        if word == "\n":
            self._blank, self._in_quotes = "", False
            return word
        closes, opens = self._sides(word) if self.joins_marks else (False, False)
        text = word if closes else self._blank + word
        self._blank = "" if opens else " "
        return text

    def _sides(self, word: str) -> tuple[bool, bool]:
        """Whether the word is a mark that closes, and one that opens."""
        if len(word) != 1:
            return False, False
        if word in QUOTES:
            self._in_quotes = not self._in_quotes
            return not self._in_quotes, self._in_quotes
        kind = unicodedata.category(word)
        return word in CLOSING or kind in ("Pe", "Pf"), word in OPENING or kind in ("Ps", "Pi")


def written(words: Iterable[str], *, joins_marks: bool) -> str:
    """The text of words."""
    return "".join(map(WrittenWords(joins_marks=joins_marks).feed, words))
