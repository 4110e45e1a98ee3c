"""Trackers: the interface, and the reporter that passes every line of `metrics.jsonl` to them once."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ensue.errors import in_one_line
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Facts, MetricsLog, Outcome, Reporter, StepReport, Validation

Record = dict[str, Any]


class Tracker(ABC):
    """Writes the records of a run for another program. An exception ends the tracker and not the run."""

    name: ClassVar[str]
    package: ClassVar[str] = ""
    """The package that it needs, which is in the extra of its name."""

    @abstractmethod
    def begin(self, run: RunDirectory) -> None:
        """Called before the first record. A resumed run begins again with its first record."""

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


SECONDS = 10
"""The time between two reads of the log without a validation."""


class TrackedReporter(Reporter):
    """Forwards each report to `reporter`, and each line of the log to `trackers` once.

    A resumed run begins with the lines that its log has. A tracker that raises is disabled, with a note.
    """

    def __init__(self, reporter: Reporter, run: str | Path, trackers: Sequence[Tracker]) -> None:
        self.reporter, self.run, self.trackers = reporter, RunDirectory(run), list(trackers)
        self.num_sent, self.sent_at = 0, 0.0

    def started(self, facts: Facts) -> None:
        self.reporter.started(facts)
        self._each(lambda tracker: tracker.begin(self.run))
        self._send()

    def noted(self, note: str) -> None:
        self.reporter.noted(note)

    def working(self, what: str, share: float) -> None:
        self.reporter.working(what, share)

    def stepped(self, report: StepReport) -> None:
        self.reporter.stepped(report)
        if time.monotonic() - self.sent_at > SECONDS:
            self._send()

    def validated(self, validation: Validation) -> None:
        self.reporter.validated(validation)
        self._send()

    def is_enough(self) -> bool:
        return self.reporter.is_enough()

    def finished(self, outcome: Outcome) -> None:
        self._send()
        self._each(lambda tracker: tracker.end())
        self.reporter.finished(outcome)

    def _send(self) -> None:
        if not self.trackers:
            return
        records = MetricsLog(self.run.metrics).records()
        new, self.num_sent, self.sent_at = records[self.num_sent :], len(records), time.monotonic()
        for record in new:
            self._each(lambda tracker, record=record: tracker.record(record))  # type: ignore[misc]
        self._each(lambda tracker: tracker.flush())

    def _each(self, call: Callable[[Tracker], Any]) -> None:
        for tracker in list(self.trackers):
            try:
                call(tracker)
            except Exception as error:  # of another program; it does not end the run
                self.trackers.remove(tracker)
                reason = in_one_line(str(error)) or type(error).__name__
                self.reporter.noted(f"the tracker {tracker.name} has failed and is disabled: {reason}")
