"""A run that is served: its pipeline, what it offers, and the threads that compute for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from ensue.engine import HeldWeights
from ensue.library import load
from ensue.runs.directory import RunDirectory
from ensue.serving.limits import Limits
from ensue.serving.loop import Loop
from ensue.serving.metrics import Metrics
from ensue.serving.sessions import Sessions
from ensue.serving.socket import name_of
from ensue.serving.worker import Worker
from ensue.tasks.entry import TaskEntry

ROUTES = {
    "generate": "/v1/completions",
    "embed": "/v1/embeddings",
    "predict": "/v1/predict",
    "score": "/v1/score",
    "inspect": "/v1/inspect",
}
"""For each command of a task's entry, the route that does the same."""


class Served:
    """A model under a name, which is that of its run directory."""

    def __init__(
        self, name: str, pipeline: Any, entry: TaskEntry, *, limits: Limits, metrics: Metrics,
        report: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self.name, self.pipeline = name, pipeline
        self.entry = entry
        self.task: str = entry.recipe.model_fields["task"].default
        commands = entry.commands.keys() - ({"generate"} if pipeline.generates_files else set())
        self.routes = [route for command, route in ROUTES.items() if command in commands]
        self.created = int(time.time())
        self.sessions = Sessions(limits.sessions, limits.session_seconds)
        weights = HeldWeights()
        self.worker = Worker(f"worker of {self.name}", weights.used)
        """What is computed text by text, so that each gets what it would get alone."""
        self.loop: Loop | None = None
        if "generate" in commands:
            self.loop = Loop(
                pipeline.model, rows=limits.rows, weights=weights, metrics=metrics, name=self.name, report=report
            )

    @classmethod
    def of(cls, run: Path, *, device: str, **options: Any) -> Self:
        """The model of a run directory. Raises EnsueError if it cannot be loaded."""
        return cls(name_of(run), load(run, device=device), RunDirectory(run).entry, **options)

    def as_json(self) -> dict[str, Any]:
        """The model in the list of models."""
        return {
            "id": self.name, "object": "model", "created": self.created, "owned_by": "ensue", "task": self.task,
            "routes": self.routes, "num_texts": self.pipeline.num_texts, "num_scored": self.pipeline.num_scored,
            "reads_frames": self.pipeline.reads_frames,
        }  # fmt: skip

    def close(self) -> None:
        """Ends the threads."""
        self.worker.close()
        if self.loop is not None:
            self.loop.close()
