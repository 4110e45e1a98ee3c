"""The interface of a tracker: it is told every line of `metrics.jsonl`, once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from ensue.runs.directory import RunDirectory

Record = dict[str, Any]


class Tracker(ABC):
    """Keeps the records of a run. Whatever it raises ends the tracker and not the run."""

    name: ClassVar[str]

    @abstractmethod
    def begin(self, run: RunDirectory) -> None:
        """Called before the first record. A run that goes on is told again from its first record."""

    @abstractmethod
    def record(self, record: Record) -> None:
        """Called with each record in order."""

    @abstractmethod
    def flush(self) -> None:
        """Called after some records."""

    @abstractmethod
    def end(self) -> None:
        """Called when the run has ended, or was interrupted."""


def numbers(record: Record) -> Iterator[tuple[str, float]]:
    """The numbers of a record by their names, such as "train/loss" and "valid/accuracy"."""
    for name, value in {**record, **record.get("scores", {})}.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in ("step", "seconds"):
            yield f"{record['kind']}/{name}", value
