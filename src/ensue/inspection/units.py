"""The units of layers over a text (cells, gates, hidden states, neurons), and properties of the text that they follow.

Karpathy, Johnson & Fei-Fei 2016, "Visualizing and understanding recurrent networks", looked for such units by eye.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.inspection.encoder import DIMENSIONS, place_of
from ensue.nn import SequenceLayer, tap_names
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
    most = {name: int(np.unique(of_text, return_counts=True)[1].max()) for name, of_text in values.items()}
    return {name: of_text for name, of_text in values.items() if len(of_text) - most[name] >= FEWEST}


GATES = {"input", "forget", "output", "reset", "update", "depth"}
SHUT, OPEN = 0.1, 0.9
"""A gate below or above is saturated."""
FEWEST_TOKENS = 40
"""The fewest tokens in which a correlation says something."""


class Units(NamedTuple):
    """The `values` (T, d) of a layer's units of one `kind`, such as "cell", at T tokens. Layers count from 1."""

    layer: int
    kind: str
    values: NDArray[np.float32]

    @property
    def name(self) -> str:
        """The layer and the kind, as they are shown."""
        return f"layer {self.layer}, {self.kind}"

    @property
    def is_gate(self) -> bool:
        """Whether the values are shares, from 0 to 1."""
        return self.kind.rpartition(" ")[2] in GATES


class Follower(NamedTuple):
    """A unit, `number` in `units[group]`, and its correlation with a property of the text."""

    group: int
    number: int
    correlation: float


def unit_taps(layers: SequenceLayer) -> list[str]:
    """The names of all taps that see units, which are all but weights of attention."""
    return [name for name in tap_names(layers) if name.rpartition(".")[2] != "weights"]


def named(values: Mapping[str, NDArray[np.float32]]) -> list[Units]:
    """The values seen at these taps, with the numbers of their layers."""
    layers = list(dict.fromkeys(place_of(name)[0] for name in values))
    return [
        Units(layers.index(place_of(name)[0]) + 1, _kind(name.split(".")), of_tap) for name, of_tap in values.items()
    ]


def tap_of_units(layers: SequenceLayer) -> dict[str, str]:
    """For each name of units, such as "layer 1, cell", the tap at which they are seen."""
    taps = unit_taps(layers)
    nothing = np.zeros((0, 0), np.float32)
    return {found.name: tap for found, tap in zip(named(dict.fromkeys(taps, nothing)), taps, strict=True)}


def _kind(parts: Sequence[str]) -> str:
    """The tap's name, and the part of a layer that it is in if there are others with this name."""
    return " ".join([part for part in parts[:-1] if part in DIMENSIONS or part == "kept"] + [parts[-1]])


def correlations(units: Sequence[Units], properties: Mapping[str, NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """For each of `units` Pearson's r (P, d) of each property with each unit; 0 for what is constant.

    There are none for fewer than `FEWEST_TOKENS` tokens.
    """
    rows = np.array(list(properties.values()))
    if not rows.size or rows.shape[1] < FEWEST_TOKENS:
        return []
    rows = _standard(rows.T).T
    # Not "@": the threads of NumPy's BLAS wait for each other, for seconds where other programs hold the cores.
    return [np.einsum("pt,td->pd", rows, _standard(found.values.astype(np.float64))) for found in units]


def _standard(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns with mean 0 and length 1; zeros for what is constant but for rounding."""
    centered = columns - columns.mean(0)
    lengths = np.linalg.norm(centered, axis=0)
    varies = lengths > 1e-6 * (np.abs(columns).max(0) * np.sqrt(len(columns)) + 1e-30)
    standard: NDArray[np.float64] = np.divide(centered, lengths, out=np.zeros_like(centered), where=varies)
    return standard


def followers(correlations: Sequence[NDArray[np.float64]], place: int, most: int) -> list[Follower]:
    """The units that follow the property at this place best, with or against it, the best first."""
    found = [
        Follower(group, number, float(r[place, number]))
        for group, r in enumerate(correlations)
        for number in np.argsort(-np.abs(r[place]), kind="stable")[:most].tolist()
    ]
    return sorted(found, key=lambda one: -abs(one.correlation))[:most]


def saturation(values: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The shares of the tokens at which each gate (T, d) is shut, and open: each (d,)."""
    return (values < SHUT).mean(0), (values > OPEN).mean(0)
