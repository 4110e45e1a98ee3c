"""The reports of a run at Weights & Biases, or with WANDB_MODE=offline in `RUN/wandb`."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from ensue.parsing import ParseError, parse_json
from ensue.runs.directory import RunDirectory
from ensue.runs.weights import write_text
from ensue.trackers.tracker import Record, Tracker, numbers

SECONDS = 30
"""How long it may take to reach the server."""


class WeightsAndBiases(Tracker):
    """A run there for each run directory. `RUN/wandb/told.json` has the last step that was told, so that a run that
    goes on tells nothing twice.
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
            settings=wandb.Settings(init_timeout=SECONDS, console="off", silent=True),
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
