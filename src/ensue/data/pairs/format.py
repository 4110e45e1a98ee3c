"""The interface of a format of pairs. The formats are in the files beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from ensue.data.lines import Lines
from ensue.data.pairs.pair import Pair, PairChoice, PairLayout


class PairFormat(ABC):
    """A way in which pairs stand in a text file."""

    @abstractmethod
    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        """What the file is taken for, from `choice` and its first lines. DataError where that cannot be told."""

    @abstractmethod
    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        """The file's pairs, in its order and in constant memory; without targets unless `is_labeled`.

        DataError (file:line) for what is none. Sides may be empty.
        """
