"""Experiment trackers: CSV, TensorBoard, Weights & Biases."""

import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from ensue.outputs import row_lines
from ensue.parsing import ParseError, parse_json
from ensue.runs.directory import RunDirectory
from ensue.runs.weights import write_text
from ensue.trackers.tracker import Record, Tracker, numbers


class CsvFile(Tracker):
    """A tracker that rewrites `RUN/metrics.csv` completely: a row for each record, a column for each number."""

    name = "csv"
    path: Path

    def begin(self, run: RunDirectory) -> None:
        self.path, self.rows = run.path / "metrics.csv", list[Record]()

    def record(self, record: Record) -> None:
        times: Record = {key: record[key] for key in ("step", "seconds") if key in record}
        self.rows.append({"kind": record["kind"]} | times | dict(numbers(record)))

    def flush(self) -> None:
        columns = dict.fromkeys(["kind", "step", "seconds", *(name for row in self.rows for name in row)])
        write_text(self.path, "".join(row_lines("csv", self.rows, columns)))

    def end(self) -> None:
        self.flush()


class TensorBoard(Tracker):
    """A tracker that writes scalars and samples to `RUN/tensorboard`, and rewrites them if the run is resumed."""

    name = "tensorboard"
    package = "tensorboardX"

    def begin(self, run: RunDirectory) -> None:
        from tensorboardX import SummaryWriter  # noqa: PLC0415 (an extra)

        folder = run.path / "tensorboard"
        shutil.rmtree(folder, ignore_errors=True)
        self.writer: Any = SummaryWriter(str(folder))
        self.writer.add_text("recipe", f"```\n{run.recipe.to_toml()}\n```")
        self.start_time, self.seconds = time.time(), 0.0

    def record(self, record: Record) -> None:
        self.seconds = record.get("seconds", self.seconds)
        times = {"global_step": record["step"], "walltime": self.start_time + self.seconds}
        for name, value in numbers(record):
            self.writer.add_scalar(name, value, **times)
        if record.get("sample"):
            self.writer.add_text("sample", record["sample"], **times)

    def flush(self) -> None:
        self.writer.flush()

    def end(self) -> None:
        self.writer.close()


MAX_CONNECT_SECONDS = 30


class WeightsAndBiases(Tracker):
    """A tracker that logs a run to Weights & Biases, or with WANDB_MODE=offline to `RUN/wandb`.

    `RUN/wandb/told.json` has the last logged step, so that a resumed run does not log records twice.
    """

    name = "wandb"
    package = "wandb"

    def begin(self, run: RunDirectory) -> None:
        import wandb  # noqa: PLC0415 (an extra)

        key = f"{run.path.resolve()} {run.manifest.entries()['config.json'].written}"
        id = hashlib.sha256(key.encode()).hexdigest()[:12]
        (run.path / "wandb").mkdir(exist_ok=True)
        self.path, self.id = run.path / "wandb" / "told.json", id
        try:
            self.logged = self.step = int(parse_json(self.path.read_bytes())[id])
        except (OSError, ParseError, LookupError, TypeError, ValueError):
            self.logged = self.step = -1
        self.run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "ensue"), name=run.path.resolve().name, dir=str(run.path), id=id,
            resume="allow", config=run.recipe.values(),
            settings=wandb.Settings(init_timeout=MAX_CONNECT_SECONDS, console="off", silent=True),
        )  # fmt: skip

    def record(self, record: Record) -> None:
        values = dict(numbers(record))
        if record["kind"] == "test":  # the step of the best weights is before the last logged step
            self.run.summary.update(values)
        elif record["step"] > self.logged:
            self.step = max(self.step, record["step"])
            self.run.log(values, step=record["step"])

    def flush(self) -> None:
        write_text(self.path, json.dumps({self.id: self.step}))

    def end(self) -> None:
        self.run.finish(exit_code=0)
