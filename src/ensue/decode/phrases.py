"""Phrases that must occur (how much of each a hypothesis has), and tokens that may not follow.

For each phrase a hypothesis has a state: how many of the phrase's tokens stand at its end (Knuth, Morris & Pratt 1977),
or all of them once the phrase has occurred. Phrases may overlap. The sum of the states is the hypothesis's bank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ensue.decode.hypotheses import Phrase


class Requirements:
    """The required phrases of each of B inputs, as tables: C phrases of up to L tokens, A different tokens."""

    def __init__(self, phrases: Sequence[tuple[Phrase, ...]]) -> None:
        tokens = [sorted({token for phrase in of_input for token in phrase}) for of_input in phrases]
        self.phrases = phrases
        self.count = max(map(len, phrases))
        longest = max((len(phrase) for of_input in phrases for phrase in of_input), default=0)
        self.alphabet = np.full((len(phrases), max(map(len, tokens))), -1)
        self.lengths = np.zeros((len(phrases), self.count), np.int64)
        self.next = np.zeros((len(phrases), self.count, longest + 1, self.alphabet.shape[1] + 1), np.int64)
        for number, (of_input, alphabet) in enumerate(zip(phrases, tokens, strict=True)):
            self.alphabet[number, : len(alphabet)] = alphabet
            for place, phrase in enumerate(of_input):
                self.lengths[number, place] = len(phrase)
                self._fill(self.next[number, place], phrase, alphabet)

    @staticmethod
    def _fill(table: NDArray[np.int64], phrase: Phrase, alphabet: list[int]) -> None:
        before = 0  # the state after all tokens but the first
        for state, symbol in enumerate(map(alphabet.index, phrase)):
            table[state] = table[before]
            table[state, symbol] = state + 1
            before = table[before, symbol] if state else 0
        table[len(phrase)] = len(phrase)

    def after(
        self, inputs: NDArray[np.int64], states: NDArray[np.int64], tokens: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The states (B, S, M, C) of hypotheses of `inputs` (B,) in `states` (B, S, C) after each of `tokens`."""
        same = tokens[..., None] == self.alphabet[inputs, None, None]
        symbols = np.where(same.any(-1), same.argmax(-1), self.alphabet.shape[1])
        phrases = np.arange(self.count)
        return self.next[inputs[:, None, None, None], phrases, states[:, :, None], symbols[..., None]]

    def lacked(self, number: int, states: NDArray[np.int64]) -> tuple[Phrase, ...]:
        """The phrases of an input that a hypothesis with these states (C,) lacks."""
        pairs = zip(self.phrases[number], states.tolist(), strict=False)
        return tuple(phrase for phrase, state in pairs if state < len(phrase))


Blocked = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows, and the id that is blocked in each; a row may be there several times."""


class Forbidden:
    """The phrases that must not occur in each of B inputs. Those of one length are compared together.

    `always` has the tokens that are forbidden in every input by themselves.
    """

    def __init__(self, phrases: Sequence[tuple[Phrase, ...]]) -> None:
        sets = [set(of_input) for of_input in phrases]
        always = {phrase for phrase in set.intersection(*sets) if len(phrase) == 1}
        self.always = np.array(sorted(always), np.int64).reshape(-1)
        of_length: dict[int, dict[Phrase, None]] = {}
        for phrase in (phrase for of_input in phrases for phrase in of_input if phrase not in always):
            of_length.setdefault(len(phrase), {})[phrase] = None
        self.groups = [
            (np.array([*group]), np.array([[phrase in of_input for phrase in group] for of_input in sets]))
            for group in of_length.values()
        ]
        """Phrases (P, L) of a length, and whether each is forbidden in each input (B, P)."""

    def blocked(self, inputs: NDArray[np.int64], history: NDArray[np.int64]) -> list[Blocked]:
        """The tokens that would complete a phrase after `history` (R, t) of rows of `inputs` (R,)."""
        found = []
        for group, are_forbidden in self.groups:
            before = group.shape[1] - 1
            if before <= history.shape[1]:
                ends = history[:, None, history.shape[1] - before :]
                rows, phrases = np.nonzero((ends == group[:, :-1]).all(2) & are_forbidden[inputs])
                found.append((rows, group[phrases, -1]))
        return found


def repeated(history: NDArray[np.int64], n: int) -> Blocked:
    """The tokens that would complete an n-gram that `history` (R, t) has already (Paulus et al. 2018)."""
    if history.shape[1] < n:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    windows = sliding_window_view(history, n, axis=1)
    ends = history[:, None, history.shape[1] - n + 1 :]
    rows, places = np.nonzero((windows[:, :, :-1] == ends).all(2))
    return rows, windows[rows, places, -1]
