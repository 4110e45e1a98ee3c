"""The interface of trackers, and the reporter that passes each line of `metrics.jsonl` to the trackers once."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from ensue.errors import to_one_line
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Facts, MetricsLog, Outcome, Reporter, StepReport, Validation

Record = dict[str, Any]


class Tracker(ABC):
    """A writer of a run's records for another program. An exception disables the tracker, but the run continues."""

    name: ClassVar[str]
    package: ClassVar[str] = ""
    """The required package, which the extra with the tracker's name installs; "" without a required package."""

    @abstractmethod
    def begin(self, run: RunDirectory) -> None:
        """Prepare for the records of a run. A resumed run sends all of its records again."""

    @abstractmethod
    def record(self, record: Record) -> None:
        """Write a record. Records are written in order."""

    @abstractmethod
    def flush(self) -> None:
        """Make the last records visible to the other program."""

    @abstractmethod
    def end(self) -> None:
        """Close the output, after the run has finished or was interrupted."""


def numbers(record: Record) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a record with their names, such as "train/loss" and "valid/accuracy"."""
    for name, value in {**record, **record.get("scores", {})}.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in ("step", "seconds"):
            yield f"{record['kind']}/{name}", value


SECONDS_BETWEEN_READS = 10
"""The minimum time between two reads of the log; after a validation the log is read at once."""


class TrackedReporter(Reporter):
    """A reporter that forwards each report to `reporter`, and each line of the log to `trackers` once.

    A resumed run sends the lines of its log first. A tracker that raises an exception is disabled, with a note.
    """

    def __init__(self, reporter: Reporter, run: str | Path, trackers: Sequence[Tracker]) -> None:
        self.reporter, self.run, self.trackers = reporter, RunDirectory(run, is_output=True), list(trackers)
        self.noted, self.working, self.is_enough = reporter.noted, reporter.working, reporter.is_enough  # type: ignore[method-assign]
        self.num_sent, self.sent_at = 0, 0.0

    def started(self, facts: Facts) -> None:
        self.reporter.started(facts)
        self._call_trackers(lambda tracker: tracker.begin(self.run))
        self._send()

    def stepped(self, report: StepReport) -> None:
        self.reporter.stepped(report)
        if time.monotonic() - self.sent_at > SECONDS_BETWEEN_READS:
            self._send()

    def validated(self, validation: Validation) -> None:
        self.reporter.validated(validation)
        self._send()

    def finished(self, outcome: Outcome) -> None:
        self._send()
        self._call_trackers(lambda tracker: tracker.end())
        self.reporter.finished(outcome)

    def _send(self) -> None:
        if not self.trackers:
            return
        self.sent_at = time.monotonic()
        for record in islice(MetricsLog(self.run.metrics).records(), self.num_sent, None):
            self.num_sent += 1
            self._call_trackers(lambda tracker, record=record: tracker.record(record))  # type: ignore[misc]
        self._call_trackers(lambda tracker: tracker.flush())

    def _call_trackers(self, call: Callable[[Tracker], Any]) -> None:
        for tracker in list(self.trackers):
            try:
                call(tracker)
            except Exception as error:  # an error of another program does not end the run
                self.trackers.remove(tracker)
                reason = to_one_line(str(error)) or type(error).__name__
                self.reporter.noted(f"the tracker {tracker.name} has failed and is disabled: {reason}")
