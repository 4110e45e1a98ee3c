"""Text and numbers for a page: escaped, cut to a width, with a visible form for invisible characters."""

from __future__ import annotations

import math
import re
import unicodedata

from markupsafe import Markup, escape

from ensue.text.graphemes import is_boundary

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
LONGEST_WORD = 300
"""The most characters of a word in a text."""
NARROW, WIDE = 7.2, 13.5
"""Pixels of a character at 13 pixels."""


def clean(text: str) -> str:
    """Characters that no document may hold (control characters, halves of characters) become U+FFFD."""
    return _FORBIDDEN.sub("\ufffd", text)


def escaped(text: str) -> Markup:
    """For content and attributes."""
    return escape(clean(text))


def written(piece: str) -> Markup:
    """A token in a text; one without text has a dot, and a line end a sign."""
    return escaped(clipped(piece, LONGEST_WORD) or "·").replace("\n", Markup("<i>↵</i>\n"))


def visible(character: str) -> str:
    """One code point as a letter by itself: a mark sits on a circle, what has no shape shows its number."""
    category = unicodedata.category(character)
    if category.startswith("M") and not "\ufe00" <= character <= "\ufe0f":
        return "\u25cc" + character
    if category[0] in "CZ" or category.startswith("M"):
        return f"{ord(character):04X}"
    return character


def clipped(text: str, most: int = 16) -> str:
    """At most so many characters, cut between graphemes."""
    if len(text) <= most:
        return text
    cut = most - 1
    while cut > 1 and not is_boundary(text, cut):
        cut -= 1
    return text[:cut] + "…"


def width_of(text: str) -> float:
    """The approximate width of a text in pixels."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    marks = sum(unicodedata.category(character) in ("Mn", "Me", "Cf") for character in text)
    return wide * WIDE + (len(text) - wide - marks) * NARROW


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, as a minus and not a hyphen."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def plain(value: float, digits: int = 2) -> str:
    """A number with a minus sign in place of a hyphen."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def short(value: float, digits: int = 5) -> str:
    """A number of any size with a few digits; a value that is missing is called so."""
    return "missing" if math.isnan(value) else f"{value:.{digits}g}".replace("-", "−")


def share(value: float) -> str:
    """A probability that is not rounded to 0 or 1 unless it is exactly that."""
    if 0 < value < 0.001:
        return "<.001"
    if 0.999 < value < 1:
        return ">.999"
    return f"{value:.3f}".removeprefix("0")
