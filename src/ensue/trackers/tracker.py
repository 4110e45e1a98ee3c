"""The interface of a tracker, which is told every line of `metrics.jsonl` once, the reporter that tells it, and the
tracker that needs no package: a table.
"""

from __future__ import annotations

import csv
import io
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ensue.errors import in_one_line
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Facts, MetricsLog, Outcome, Reporter, StepReport, Validation
from ensue.runs.weights import write_text

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


SECONDS = 10
"""Between two looks at the log while no validation comes."""


class TrackedReporter(Reporter):
    """Passes everything on to `reporter`, and the lines of the log to `trackers`, each line once.

    A run that goes on begins with the lines that it has kept. A tracker that fails is told no more, and a note says so.
    """

    def __init__(self, reporter: Reporter, run: str | Path, trackers: Sequence[Tracker]) -> None:
        self.reporter, self.run, self.trackers = reporter, RunDirectory(run), list(trackers)
        self.told, self.looked_at = 0, 0.0

    def started(self, facts: Facts) -> None:
        self.reporter.started(facts)
        self._each(lambda tracker: tracker.begin(self.run))
        self._tell()

    def noted(self, note: str) -> None:
        self.reporter.noted(note)

    def working(self, what: str, share: float) -> None:
        self.reporter.working(what, share)

    def stepped(self, report: StepReport) -> None:
        self.reporter.stepped(report)
        if time.monotonic() - self.looked_at > SECONDS:
            self._tell()

    def validated(self, validation: Validation) -> None:
        self.reporter.validated(validation)
        self._tell()

    def is_enough(self) -> bool:
        return self.reporter.is_enough()

    def finished(self, outcome: Outcome) -> None:
        self._tell()
        self._each(lambda tracker: tracker.end())
        self.reporter.finished(outcome)

    def _tell(self) -> None:
        if not self.trackers:
            return
        records = MetricsLog(self.run.metrics).records()
        new, self.told, self.looked_at = records[self.told :], len(records), time.monotonic()
        for record in new:
            self._each(lambda tracker, record=record: tracker.record(record))  # type: ignore[misc]
        self._each(lambda tracker: tracker.flush())

    def _each(self, call: Callable[[Tracker], Any]) -> None:
        for tracker in list(self.trackers):
            try:
                call(tracker)
            except Exception as error:  # whatever another program has in store, it ends no run
                self.trackers.remove(tracker)
                said = in_one_line(str(error)) or type(error).__name__
                self.reporter.noted(f"the tracker {tracker.name} has failed and is told no more: {said}")


class CsvFile(Tracker):
    """`RUN/metrics.csv`, a table that spreadsheets read: a row for each record, a column for each number. The file is
    whole at any time.
    """

    name = "csv"
    path: Path

    def begin(self, run: RunDirectory) -> None:
        self.path, self.rows = run.path / "metrics.csv", list[Record]()

    def record(self, record: Record) -> None:
        times: Record = {key: record[key] for key in ("step", "seconds") if key in record}
        self.rows.append({"kind": record["kind"]} | times | dict(numbers(record)))

    def flush(self) -> None:
        columns = dict.fromkeys(["kind", "step", "seconds", *(name for row in self.rows for name in row)])
        text = io.StringIO()
        table = csv.DictWriter(text, list(columns), lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        write_text(self.path, text.getvalue())

    def end(self) -> None:
        self.flush()
