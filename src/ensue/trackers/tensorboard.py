"""`RUN/tensorboard`: the reports of a run as events for TensorBoard, written by tensorboardX."""

from __future__ import annotations

import shutil
import time
from typing import Any

from ensue.runs.directory import RunDirectory
from ensue.trackers.tracker import Record, Tracker, numbers


class TensorBoard(Tracker):
    """Scalars by step, and samples as text. A run that goes on is written anew, so nothing is there twice."""

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
