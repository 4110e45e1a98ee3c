"""Reports of a run: what a reporter is told, and the lines of `metrics.jsonl`, appended while the run goes on.

The library prints nothing; a program passes a reporter to be told of its progress.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensue.runs.manifest import altered, entry_of
from ensue.runs.schema import RECORD, Entry, checked, parsed, told
from ensue.runs.weights import flush, write_text


@dataclass(frozen=True)
class Facts:
    """The facts of a run that are known before the first step."""

    data: str
    """The amount of data, in one line."""
    unit: str
    """The unit of a prediction: tokens, words or texts."""
    num_parameters: int
    model: str
    device: str
    threads: int
    precision: str
    protocol: str
    """How validation reads its data, in one line."""
    notes: tuple[str, ...] = ()
    """Remarks on the data and the run, such as unknown tokens."""
    resumed_from: str = ""


@dataclass(frozen=True)
class StepReport:
    """The progress of a run; `share` is the used part of the budget, from 0 to 1."""

    step: int
    share: float
    seconds_left: float
    loss: float
    """Nats per prediction, of this step's batch."""
    speed: float
    """Predictions per second, in `Facts.unit`."""


@dataclass(frozen=True)
class Validation:
    """Scores on the validation data after `step` steps; `best` tells whether they are the best so far."""

    step: int
    seconds: float
    scores: dict[str, Any]
    summary: str
    """The scores in one line."""
    best: bool
    sample: str
    selection: float
    """The number that chooses the best weights: the lowest one is the best."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    run: Path
    task: str
    step: int
    seconds: float
    reason: str
    """"finished", "stopped early" or "interrupted"."""
    best_step: int
    valid: dict[str, Any] | None
    test: dict[str, Any] | None
    valid_summary: str = ""
    test_summary: str = ""
    """The test scores in one line."""


class Reporter:
    """Is told of everything and does nothing. Override the methods for what you want to show."""

    def started(self, facts: Facts) -> None:
        """Called before the first step."""

    def noted(self, note: str) -> None:
        """Called with a remark of one line."""

    def working(self, what: str, share: float) -> None:
        """Called now and then while something is worked out before the first step; `share` is done, from 0 to 1."""

    def stepped(self, report: StepReport) -> None:
        """Called after each step."""

    def validated(self, validation: Validation) -> None:
        """Called after each validation."""

    def is_enough(self) -> bool:
        """Asked before each step of a run of one process: whether the run should end now, as one that stops early."""
        return False

    def finished(self, outcome: Outcome) -> None:
        """Called at the end of the run."""


class MetricsLog:
    """Appends records to a file of JSON lines. `rewind` removes the records that a resumed run will write again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, **record: Any) -> None:
        """Appends a record as a line."""
        with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(json.dumps({"kind": kind, **record}, ensure_ascii=False) + "\n")

    def entry(self) -> Entry | None:
        """The manifest's entry of the log as it is now, on the disk; None before the first line."""
        if not self.path.exists():
            return None
        flush(self.path)
        return entry_of(self.path)

    def rewind(self, start: Entry | None) -> None:
        """Cuts the log back to the entry `start`. Raises RunError if the log does not begin with that content."""
        if start is None:
            write_text(self.path, "")
            return
        with told(self.path):
            size = self.path.stat().st_size
            if size < start.bytes or entry_of(self.path, start.bytes).sha256 != start.sha256:
                raise altered(self.path, start, size)
        with self.path.open("r+b") as file:
            file.truncate(start.bytes)

    def records(self) -> list[dict[str, Any]]:
        """All records. An incomplete last line is skipped. Raises RunError for a line that is no record."""
        with told(self.path):
            *lines, _ = self.path.read_bytes().split(b"\n") if self.path.exists() else [b""]
        records = []
        for number, line in enumerate(lines, 1):
            place = Path(f"{self.path}:{number}")
            with told(place):
                records.append(parsed(line))
            checked(RECORD, records[-1], place)
        return records
