"""Parts of texts in use that the training data lack: words without a vector, new characters, new values."""

from __future__ import annotations

from collections import Counter
from threading import Lock

FEW, MANY = 0.05, 0.4
"""Shares of words. Any text has words that are new, so these are worth a line only where they are many."""


class Lacking:
    """Counts, of the words of texts, those for which a feature has nothing. Threads may share it."""

    def __init__(self) -> None:
        self._lock, self._lacking, self._all = Lock(), Counter[str](), Counter[str]()

    def add(self, what: str, lacking: int, words: int) -> None:
        """So many of `words` lack something; `what` says it behind their number."""
        with self._lock:
            self._lacking[what] += lacking
            self._all[what] += words

    def line(self, *, few: float = FEW, least: int = 0) -> str:
        """A line about what more than a few percent of the words lack; "" if nothing is to be said, or before `least`
        words.
        """
        with self._lock:
            found = [(what, count, self._all[what]) for what, count in self._lacking.items()]
        return "; ".join(
            f"{count:,} of {words:,} words ({count / words:.0%}) {what}"
            for what, count, words in found
            if words >= least and count > (MANY if what == NEW else few) * words
        )


NO_VECTOR = "have no pretrained vector, neither in the run nor with --vectors"
NEW_CHARACTERS = "have characters that the training data do not have"
NEW = "are not known from the training data"


def new_value(column: str) -> str:
    """Of a column of the data."""
    return f'have a value of the column "{column}" that the training data do not have'
