"""Hypotheses: what a beam search finds, and the n best of them so far."""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple

Phrase = tuple[int, ...]
"""Ids that stand next to each other."""


class Hypothesis(NamedTuple):
    """A sequence that a beam search found.

    - `ids` has neither the begin nor the end symbol; a given prefix is a part of it.
    - `log_probability` is the sum of ln P over `ids`, and over the end symbol if `is_complete`.
    - `score` is what the hypotheses are ranked by: the log-probability with its length and coverage penalties.
    - `is_complete` is False if the search was cut at the most tokens, or if nothing was allowed to follow.
    - `lacks` are the required phrases that it does not have; a complete hypothesis has all.
    """

    ids: tuple[int, ...]
    score: float
    log_probability: float
    is_complete: bool = True
    lacks: tuple[Phrase, ...] = ()


class NBest:
    """The `size` best hypotheses, the best first.

    Those that lack fewer phrases come first. Of equal scores the one that was added first is the better one.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.hypotheses: list[Hypothesis] = []

    @property
    def last_score(self) -> float:
        """The score that a new hypothesis has to exceed; -∞ as long as there is room."""
        return self.hypotheses[-1].score if len(self.hypotheses) == self.size else float("-inf")

    def add(self, hypothesis: Hypothesis) -> None:
        """Keeps `hypothesis` if it is one of the best."""
        insort(self.hypotheses, hypothesis, key=lambda known: (len(known.lacks), -known.score))
        del self.hypotheses[self.size :]
