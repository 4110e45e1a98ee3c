"""Tokens that may not follow: those that would complete a forbidden phrase, or an n-gram for the second time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ensue.decode.hypotheses import Phrase

Blocked = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows, and the id that is blocked in each; a row may be there several times."""


class Forbidden:
    """Phrases that must not occur; those of one length are compared together. `always` has those of one token."""

    def __init__(self, phrases: Sequence[Phrase]) -> None:
        of_length: dict[int, list[Phrase]] = {}
        for phrase in phrases:
            of_length.setdefault(len(phrase), []).append(phrase)
        self.always = np.array(of_length.pop(1, []), np.int64).reshape(-1)
        self.groups = [np.array(group) for group in of_length.values()]

    def blocked(self, history: NDArray[np.int64]) -> list[Blocked]:
        """The tokens that would complete a phrase of several tokens after `history` (R, t)."""
        found = []
        for group in self.groups:
            before = group.shape[1] - 1
            if before <= history.shape[1]:
                ends = history[:, None, history.shape[1] - before :]
                rows, phrases = np.nonzero((ends == group[:, :-1]).all(2))
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
