"""A served run: its pipeline, its routes, its threads, and its sessions."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from ensue.engine import CachedWeights
from ensue.errors import EnsueError
from ensue.extensions.serving.api import Model
from ensue.extensions.serving.limits import Limits
from ensue.extensions.serving.loop import Loop
from ensue.extensions.serving.metrics import Metrics
from ensue.extensions.serving.processes import name_of
from ensue.extensions.serving.refusal import Refusal, wrong
from ensue.extensions.serving.row import SessionState
from ensue.extensions.serving.worker import Worker
from ensue.library import load
from ensue.processor import Precision
from ensue.runs.directory import RunDirectory
from ensue.tasks.entry import TaskEntry
from ensue.types import leaves


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
            model = getattr(pipeline, "reader", pipeline.model)
            self.loop = Loop(model, rows=limits.rows, weights=weights, metrics=metrics, name=name, report=report)

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
            reads_frames=self.pipeline.reads_vectors,
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


class Sessions:
    """The sessions of a model, in the thread of the event loop.

    A state is a value, so a request that fails or whose client leaves changes nothing: the session is as before. To
    undo requests is to go on from a state before them. A session has the states after its latest `depth` + 1 requests.
    All sessions hold `max_bytes`; the latest state of the latest session stays, however large it is.
    """

    def __init__(self, most: int, seconds: float, depth: int, max_bytes: int) -> None:
        self.most, self.seconds, self.depth, self.max_bytes = most, seconds, depth, max_bytes
        self._kept: OrderedDict[str, tuple[float, list[SessionState | None]]] = OrderedDict()
        """When each was last used, and its states: None before the first request."""
        self._bytes: dict[str, int] = {}
        self._in_use: dict[str, list[SessionState | None]] = {}
        """The states up to that from which a request goes on. They stay while it does, even if the session goes."""

    def __len__(self) -> int:
        self._forget()
        return len(self._kept)

    def begin(self, name: str, undo: int = 0) -> SessionState | None:
        """The state of the session before its latest `undo` requests; None at its beginning.

        Raises Refusal (409) while another request goes on with it, and (400) if it has no state so far back. `end` has
        to follow if nothing is raised.
        """
        if name in self._in_use:
            raise Refusal(409, "another request goes on with this session", param="session", code="session_in_use")
        self._forget()
        _, states = self._kept.get(name, (0.0, [None]))
        if undo >= len(states):
            said = f"{undo}; the session has {len(states) - 1} requests that can be undone"
            raise wrong("undo", said, "cannot_undo")
        self._in_use[name] = states[: len(states) - undo]
        return states[-1 - undo]

    def end(self, name: str, state: SessionState | None) -> None:
        """Keeps the state that the next request goes on from; None leaves the session as it was."""
        before = self._in_use.pop(name)
        if state is not None:
            states = [*before, state][-self.depth - 1 :]
            while (size := num_bytes(states)) > self.max_bytes and len(states) > 1:
                del states[0]
            self._kept[name], self._bytes[name] = (time.monotonic(), states), size
            self._kept.move_to_end(name)
        self._forget()

    def _forget(self) -> None:
        """The oldest go, beyond the number and the bytes that are kept and after their time."""
        now = time.monotonic()
        while self._kept:
            name, (used, _) = next(iter(self._kept.items()))
            are_few = len(self._kept) <= self.most and sum(self._bytes.values()) <= self.max_bytes
            if now - used < self.seconds and (are_few or len(self._kept) == 1):
                return
            del self._kept[name], self._bytes[name]


def num_bytes(states: Sequence[SessionState | None]) -> int:
    """The memory of all states; what several have is counted once."""
    tensors = (tensor.untyped_storage() for one in states if one is not None for tensor in leaves(one.state))
    arrays = sum(one.ids.nbytes for one in states if one is not None)
    return arrays + sum({storage.data_ptr(): storage.nbytes() for storage in tensors}.values())
