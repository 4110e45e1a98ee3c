"""The interface of a format of records with values in columns, or under keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ensue.data.lines import Lines
from ensue.data.records.record import Column, Record

LABEL, PROBABILITY = "label", "probability"
"""The names of columns or keys that are added for labels and probabilities."""


class Row(NamedTuple):
    """A record and its values: fields as they are written, or an object."""

    record: Record
    values: Any


class Answer(NamedTuple):
    """The answer written into a record: labels in their column (None: in a new one), and their probabilities."""

    column: Column | None
    labels: Sequence[str]
    probabilities: Sequence[float] = ()
    separator: str = ""
    header: bool = False


class Reader(ABC):
    """A format of records. An instance holds no state."""

    name: str
    has_keys = False
    """Whether values have keys. In a table they have numbers, and names if the first row is a header."""

    @abstractmethod
    def first(self, lines: Lines) -> list[list[str]]:
        """The values of the first records, which stay unread; keys come first, if any. Other values are empty."""

    @abstractmethod
    def read(self, lines: Lines, *, header: bool, needed: Sequence[Column]) -> Iterator[Row]:
        """The records in order, in constant memory. Raises DataError (file:line) if one is invalid or incomplete."""

    @abstractmethod
    def at(self, values: Any, column: Column) -> Any:
        """The value of a record in a column, None if it has none."""

    @abstractmethod
    def text(self, values: Any, column: Column, name: str, line: int, *, numbers: bool = False) -> str:
        """The text of a record in a column; with `numbers`, also a number as written. Raises DataError otherwise."""

    @abstractmethod
    def written(self, record: Record, own: Sequence[str], answer: Answer) -> str:
        """The record with an answer, else unchanged; `own` are its labels. Values without a place come last, named."""

    def flat(self) -> Reader:
        """This format, where an object inside of a record that holds nothing but texts is part of the record."""
        return self
