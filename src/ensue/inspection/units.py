"""The activations of units over a text (cells, gates, hidden states, neurons), and their correlation with the text.

Karpathy, Johnson & Fei-Fei 2016, "Visualizing and understanding recurrent networks", searched by hand for units that
follow a property of the text.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.inspection.encoder import DIMENSIONS, locate_tap
from ensue.nn import SequenceLayer, tap_names
from ensue.text.tokenizer import Decoder

QUOTES = {"“": "”", "«": "»", "„": "“", '"': '"', "「": "」"}
BRACKETS = {"(": ")", "[": "]", "{": "}"}
MIN_OTHER_VALUES = 5
"""The minimum number of tokens without the most frequent value of a property."""


def decode_tokens(decoder: Decoder, ids: Iterable[int]) -> tuple[str, ...]:
    """Return the text of each token. A character that several tokens encode is in the text of the last of them."""
    pieces = [decoder.feed(id) for id in ids]
    return (*pieces[:-1], pieces[-1] + decoder.flush()) if pieces else ()


class _TextState:
    """The state of quotes, brackets, line and word while a text is read, character by character."""

    def __init__(self) -> None:
        self.closing, self.depth, self.in_line, self.in_word, self.last = "", 0, 0, 0, ""

    def read(self, character: str) -> None:
        """Read a character. The end of a paragraph closes quotes and brackets."""
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


def find_properties(pieces: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Return the properties (T,) of tokens by name, without properties that hardly vary.

    A position is that of the token's last character, from 0 after a line end, and from 1 at the first letter of a word.
    A token has a class of characters, such as digits, if a character of the token is of the class.
    """
    state, rows = _TextState(), []
    for token in pieces:
        for character in token:
            state.read(character)
        rows.append({
            "in quotes": bool(state.closing), "in brackets": state.depth > 0, "place in line": state.in_line,
            "place in word": state.in_word, "line end": "\n" in token, "blank": any(map(str.isspace, token)),
            "punctuation": any(unicodedata.category(character)[0] == "P" for character in token),
            "upper case": any(map(str.isupper, token)), "digit": any(map(str.isdigit, token)),
        })  # fmt: skip
    values = {name: np.array([float(row[name]) for row in rows]) for name in (rows[0] if rows else ())}
    max_counts = {name: int(np.unique(column, return_counts=True)[1].max()) for name, column in values.items()}
    return {name: column for name, column in values.items() if len(column) - max_counts[name] >= MIN_OTHER_VALUES}


GATES = {"input", "forget", "output", "reset", "update", "depth"}
SHUT, OPEN = 0.1, 0.9
"""A gate is closed below SHUT, and open above OPEN."""
MIN_TOKENS = 40
"""The minimum number of tokens for correlations."""


class Units(NamedTuple):
    """The `values` (T, d) of d units of a layer over T tokens. A `kind` is, for example, "cell"."""

    layer: int
    kind: str
    values: NDArray[np.float32]

    @property
    def name(self) -> str:
        """The displayed name, such as "layer 1, cell"."""
        return f"layer {self.layer}, {self.kind}"

    @property
    def is_gate(self) -> bool:
        """Whether the values are those of gates, from 0 to 1."""
        return self.kind.rpartition(" ")[2] in GATES


class Follower(NamedTuple):
    """Unit `number` of `units[group]`, with its correlation with a property of the text."""

    group: int
    number: int
    correlation: float


def unit_taps(layers: SequenceLayer) -> list[str]:
    """Return the names of all taps except those of attention weights."""
    return [name for name in tap_names(layers) if name.rpartition(".")[2] != "weights"]


def build_units(values: Mapping[str, NDArray[np.float32]]) -> list[Units]:
    """Return the values at taps as `Units`, with the numbers of their layers."""
    layers = list(dict.fromkeys(locate_tap(name)[0] for name in values))
    return [Units(layers.index(locate_tap(name)[0]) + 1, _kind(name.split(".")), rows) for name, rows in values.items()]


def map_units_to_taps(layers: SequenceLayer) -> dict[str, str]:
    """Return the tap of each displayed name of units, such as "layer 1, cell"."""
    taps = unit_taps(layers)
    units = build_units(dict.fromkeys(taps, np.zeros((0, 0), np.float32)))
    return {layer_units.name: tap for layer_units, tap in zip(units, taps, strict=True)}


def _kind(owners: Sequence[str]) -> str:
    """Return the last name in the path of a tap, preceded by the dimension of a grid LSTM, or by `kept` of zoneout."""
    return " ".join([owner for owner in owners[:-1] if owner in DIMENSIONS or owner == "kept"] + [owners[-1]])


def correlate(units: Sequence[Units], properties: Mapping[str, NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """Return Pearson's r (P, d) of P properties with d units, for each of `units`. The correlation of a constant is 0.

    The list is empty for fewer than `MIN_TOKENS` tokens.
    """
    rows = np.array(list(properties.values()))
    if not rows.size or rows.shape[1] < MIN_TOKENS:
        return []
    rows = _standardize(rows.T).T
    # einsum instead of "@": the threads of NumPy's BLAS wait for each other, for seconds if the cores are busy
    return [np.einsum("pt,td->pd", rows, _standardize(layer_units.values.astype(np.float64))) for layer_units in units]


def _standardize(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return columns of mean 0 and norm 1, or zeros for columns that are constant up to rounding."""
    centered = columns - columns.mean(0)
    lengths = np.linalg.norm(centered, axis=0)
    varies = lengths > 1e-6 * (np.abs(columns).max(0) * np.sqrt(len(columns)) + 1e-30)
    return np.divide(centered, lengths, out=np.zeros_like(centered), where=varies)


def find_followers(correlations: Sequence[NDArray[np.float64]], row: int, count: int) -> list[Follower]:
    """Return the `count` units with the largest absolute correlations with property number `row`, the largest first."""
    candidates = [
        Follower(group, number, float(r[row, number]))
        for group, r in enumerate(correlations)
        for number in np.argsort(-np.abs(r[row]), kind="stable")[:count].tolist()
    ]
    return sorted(candidates, key=lambda unit: -abs(unit.correlation))[:count]


def measure_saturation(values: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the fractions (d,) of tokens at which each gate (T, d) is closed, and open."""
    return (values < SHUT).mean(0), (values > OPEN).mean(0)
