"""The interface of a format of pairs. The formats are in the files beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from ensue.data.lines import Lines
from ensue.data.pairs.pair import Pair, PairChoice, PairLayout


class PairFormat(ABC):
    """A format of pairs in a text file."""

    @abstractmethod
    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        """How the file is read, by `choice` and its first lines. Raises DataError if that cannot be decided."""

    @abstractmethod
    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        """The pairs of the file in order, in constant memory; without targets unless `is_labeled`. Sides may be empty.

        Raises DataError (file:line) for a record that is no pair.
        """
