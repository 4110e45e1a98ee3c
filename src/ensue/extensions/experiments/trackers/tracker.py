"""Trackers: the interface, the reporter that passes every line of `metrics.jsonl` to them once, and those of ensue."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ensue.errors import in_one_line
from ensue.parsing import ParseError, parse_json
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
    """`RUN/metrics.csv`: a row for each record, a column for each number. The file is complete at any time."""

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


class TensorBoard(Tracker):
    """`RUN/tensorboard`: scalars by step, and samples as text. For a resumed run it is written anew."""

    name = "tensorboard"

    def begin(self, run: RunDirectory) -> None:
        from tensorboardX import SummaryWriter  # noqa: PLC0415 (an extra)

        folder = run.path / "tensorboard"
        shutil.rmtree(folder, ignore_errors=True)
        self.writer: Any = SummaryWriter(str(folder))
        self.writer.add_text("recipe", f"```\n{run.recipe.to_toml()}\n```")
        self.began, self.seconds = time.time(), 0.0

    def record(self, record: Record) -> None:
        self.seconds = record.get("seconds", self.seconds)
        times = {"global_step": record["step"], "walltime": self.began + self.seconds}
        for name, value in numbers(record):
            self.writer.add_scalar(name, value, **times)
        if record.get("sample"):
            self.writer.add_text("sample", record["sample"], **times)

    def flush(self) -> None:
        self.writer.flush()

    def end(self) -> None:
        self.writer.close()


CONNECT_SECONDS = 30
"""The longest time in which the server of Weights & Biases is reached."""


class WeightsAndBiases(Tracker):
    """A run of Weights & Biases for each run directory, or with WANDB_MODE=offline in `RUN/wandb`.

    `RUN/wandb/told.json` has the last logged step, so that a resumed run logs nothing twice.
    """

    name = "wandb"

    def begin(self, run: RunDirectory) -> None:
        import wandb  # noqa: PLC0415 (an extra)

        written = f"{run.path.resolve()} {run.manifest.entries()['config.json'].written}"
        id = hashlib.sha256(written.encode()).hexdigest()[:12]
        (run.path / "wandb").mkdir(exist_ok=True)
        self.path, self.id = run.path / "wandb" / "told.json", id
        self.told = self.step = self._last()
        self.there: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "ensue"),
            name=run.path.resolve().name,
            dir=str(run.path),
            id=id,
            resume="allow",
            config=run.recipe.values(),
            settings=wandb.Settings(init_timeout=CONNECT_SECONDS, console="off", silent=True),
        )

    def _last(self) -> int:
        """The last step that was told; -1 if nothing was, or nobody knows."""
        try:
            return int(parse_json(self.path.read_bytes())[self.id])
        except (OSError, ParseError, LookupError, TypeError, ValueError):
            return -1

    def record(self, record: Record) -> None:
        found = dict(numbers(record))
        if record["kind"] == "test":  # its step is that of the best weights, which the curve has passed
            self.there.summary.update(found)
        elif record["step"] > self.told:
            self.step = max(self.step, record["step"])
            self.there.log(found, step=record["step"])

    def flush(self) -> None:
        write_text(self.path, json.dumps({self.id: self.step}))

    def end(self) -> None:
        self.there.finish(exit_code=0)
