"""Labeled examples of a file, in memory, whose labels may be doubted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from ensue.tasks.contract.pipeline import Pipeline


class Edit(NamedTuple):
    """Characters of a piece of a file, from `start` up to and without `end`, and what stands there if they change."""

    start: int
    end: int
    new: str


class Doubt(NamedTuple):
    """Labels that are likely wrong: of the characters `start` to `end` of a text, or of the whole text.

    `probability` is that of the labels that are given, by models that have not seen them.
    """

    path: str
    line: int
    text: str
    start: int
    end: int
    given: tuple[str, ...]
    proposed: tuple[str, ...]
    probability: float
    edit: Edit

    def as_json(self) -> dict[str, Any]:
        """The doubt as JSON values."""
        labels = {"given": list(self.given), "proposed": list(self.proposed)}
        return {**self._asdict(), **labels, "probability": round(self.probability, 6), "edit": list(self.edit)}


class Examples(ABC):
    """The labeled examples of a file. `pieces` are the text of the file, one for each example, and the rest."""

    unit: ClassVar[str]
    """A plural: what labels are counted by."""
    pieces: list[str]
    num_labels: int

    @property
    @abstractmethod
    def keys(self) -> Sequence[Hashable]:
        """For each example what it says; examples of one key are held out together."""

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """The settings of a recipe that reads `rows`."""

    @abstractmethod
    def row(self, number: int) -> dict[str, Any]:
        """An example as a JSON object, to train on."""

    @abstractmethod
    def doubts(self, pipeline: Pipeline, numbers: Sequence[int]) -> Iterator[tuple[int, Doubt]]:
        """The doubts of a model in some examples, each with the number of its example."""


def edit_between(old: str, new: str) -> Edit:
    """The smallest change from one text to the other."""
    start = _common(old, new)
    behind = _common(old[start:][::-1], new[start:][::-1])
    return Edit(start, len(old) - behind, new[start : len(new) - behind])


def _common(one: str, other: str) -> int:
    """The number of characters that two texts have in common at their beginnings."""
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)
