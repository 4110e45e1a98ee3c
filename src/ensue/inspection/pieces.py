"""The pieces of text that tokens stand for, and properties of them that a model could follow."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ensue.text.tokenizer import Decoder

QUOTES = {"“": "”", "«": "»", "„": "“", '"': '"', "「": "」"}
BRACKETS = {"(": ")", "[": "]", "{": "}"}
FEWEST = 5
"""A property is of use if so many tokens do not have its most frequent value."""


def pieces_of(decoder: Decoder, ids: Iterable[int]) -> tuple[str, ...]:
    """The text of each token; together they are the decoded text. That of an incomplete character is ""."""
    pieces = [decoder.feed(id) for id in ids]
    return (*pieces[:-1], pieces[-1] + decoder.flush()) if pieces else ()


class _Place:
    """The place that a reader has reached, character by character."""

    def __init__(self) -> None:
        self.closing, self.depth, self.in_line, self.in_word, self.last = "", 0, 0, 0, ""

    def read(self, character: str) -> None:
        """Goes on. A paragraph's end closes what is open."""
        if character == "\n" == self.last:
            self.closing, self.depth = "", 0
        if self.closing and character == self.closing:
            self.closing = ""
        elif not self.closing:
            self.closing = QUOTES.get(character, "")
        self.depth = max(0, self.depth + (character in BRACKETS) - (character in BRACKETS.values()))
        self.in_line = 0 if character == "\n" else self.in_line + 1
        self.in_word = self.in_word + 1 if character.isalnum() else 0
        self.last = character


def properties_of(pieces: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """By name the properties (T,) of tokens, as they are when a token has been read; those that hardly vary are left
    out.

    Places are counted in characters, from 0 behind a line end and from 1 at a word's first letter. Of what a character
    is, it is whether one of the token's characters is.
    """
    place, found = _Place(), []
    for piece in pieces:
        for character in piece:
            place.read(character)
        found.append(
            {
                "in quotes": bool(place.closing),
                "in brackets": place.depth > 0,
                "place in line": place.in_line,
                "place in word": place.in_word,
                "line end": "\n" in piece,
                "blank": any(map(str.isspace, piece)),
                "punctuation": any(unicodedata.category(character)[0] == "P" for character in piece),
                "upper case": any(map(str.isupper, piece)),
                "digit": any(map(str.isdigit, piece)),
            }
        )
    names = found[0] if found else {}
    values = {name: np.array([float(of_token[name]) for of_token in found]) for name in names}
    return {name: of_text for name, of_text in values.items() if _varies(of_text)}


def _varies(values: NDArray[np.float64]) -> bool:
    return len(values) - int(np.unique(values, return_counts=True)[1].max(initial=0)) >= FEWEST
