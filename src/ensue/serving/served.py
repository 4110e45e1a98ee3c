"""A run that is served: its pipeline, what it offers, and the threads that compute for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from ensue.engine import CachedWeights
from ensue.errors import EnsueError
from ensue.library import load
from ensue.processor import Precision
from ensue.runs.directory import RunDirectory
from ensue.serving.api import Model
from ensue.serving.limits import Limits
from ensue.serving.loop import Loop
from ensue.serving.metrics import Metrics
from ensue.serving.processes import name_of
from ensue.serving.refusal import Refusal
from ensue.serving.sessions import Sessions
from ensue.serving.worker import Worker
from ensue.tasks.entry import TaskEntry


class Served:
    """A model under a name, which is that of its run directory. `paths` has the route of each command."""

    def __init__(
        self, name: str, pipeline: Any, entry: TaskEntry, *, paths: Mapping[str, str], limits: Limits, metrics: Metrics,
        report: Callable[[BaseException], None], long: Worker,
    ) -> None:  # fmt: skip
        self.name, self.pipeline = name, pipeline
        self.entry = entry
        self.task: str = entry.recipe.model_fields["task"].default
        commands = set(entry.commands) - ({"generate"} if pipeline.generates_files else set())
        self.routes = [path for command, path in paths.items() if command in commands]
        self.created = int(time.time())
        self.sessions = Sessions(limits.sessions, limits.session_seconds, limits.session_undo, limits.session_bytes)
        weights = CachedWeights()
        self.worker = Worker(f"worker of {self.name}", weights.used, long=long)
        """The thread that computes text by text, so that each gets what it would get alone."""
        self.loop: Loop | None = None
        if "generate" in commands:
            self.loop = Loop(
                getattr(pipeline, "reader", pipeline.model),
                rows=limits.rows,
                weights=weights,
                metrics=metrics,
                name=self.name,
                report=report,
            )

    @classmethod
    def of(
        cls, run: Path, *, device: str, precision: Precision = "float32",
        adaptation: Mapping[str, object] = MappingProxyType({}), **options: Any,
    ) -> Self:  # fmt: skip
        """The model of a run directory, which adapts to what it reads. Raises EnsueError if it cannot be loaded."""
        pipeline, entry = load(run, device=device, precision=precision), RunDirectory(run).entry
        if adaptation:
            if not hasattr(pipeline, "with_adaptation"):
                raise EnsueError(f"{run}: only a language model adapts to what it reads, and this is a {entry.what}")
            pipeline = pipeline.with_adaptation(**adaptation)
        return cls(name_of(run), pipeline, entry, **options)

    def described(self) -> Model:
        """The model in the list of models."""
        return Model(
            id=self.name, object="model", created=self.created, owned_by="ensue", task=self.task, routes=self.routes,
            num_texts=self.pipeline.num_texts, num_scored=self.pipeline.num_scored,
            reads_frames=self.pipeline.reads_frames,
        )  # fmt: skip

    def check_route(self, path: str) -> None:
        """Raises Refusal (400) if the task of the model has no such route."""
        if path not in self.routes:
            routes = ", ".join(self.routes) or "no route"
            raise Refusal(400, f"the model '{self.name}' is for {routes}", param="model", code="model_not_supported")

    def close(self) -> None:
        """Ends the threads."""
        self.worker.close()
        if self.loop is not None:
            self.loop.close()
