"""A served model: its pipeline, routes, threads and sessions."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from ensue.engine import CachedWeights
from ensue.errors import EnsueError
from ensue.extensions.serving.api import APIError, Model, reject
from ensue.extensions.serving.limits import Limits
from ensue.extensions.serving.loop import GenerationLoop
from ensue.extensions.serving.metrics import Metrics
from ensue.extensions.serving.processes import model_id
from ensue.extensions.serving.row import SessionState
from ensue.extensions.serving.worker import Worker
from ensue.library import load
from ensue.processor import InferencePrecision
from ensue.runs.directory import RunDirectory
from ensue.tasks.entry import TaskEntry
from ensue.types import leaves


class ServedModel:
    """A served model with its threads and sessions. `paths` maps commands to the paths of their routes."""

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
        self.sessions = SessionStore(limits.sessions, limits.session_seconds, limits.session_undo, limits.session_bytes)
        weights = CachedWeights()
        self.worker = Worker(f"worker of {self.name}", weights.used, long=long)
        """The thread of the routes for texts. It computes one text at a time, so results do not depend on a batch."""
        self.loop: GenerationLoop | None = None
        if "generate" in commands:
            model = getattr(pipeline, "reader", pipeline.model)
            self.loop = GenerationLoop(
                model, rows=limits.rows, weights=weights, metrics=metrics, name=name, report=report
            )

    @classmethod
    def load_run(
        cls, run: Path, *, device: str, precision: InferencePrecision = "float32",
        adaptation: Mapping[str, object] = MappingProxyType({}), **options: Any,
    ) -> Self:  # fmt: skip
        """Load the model of a run directory, with an optional adaptation. Raises EnsueError if loading fails."""
        pipeline, entry = load(run, device=device, precision=precision), RunDirectory(run).entry
        if adaptation:
            if not hasattr(pipeline, "with_adaptation"):
                raise EnsueError(f"{run}: expected a language model for adaptation, found a {entry.what}")
            pipeline = pipeline.with_adaptation(**adaptation)
        return cls(model_id(run), pipeline, entry, **options)

    def describe(self) -> Model:
        return Model(
            id=self.name, object="model", created=self.created, owned_by="ensue", task=self.task, routes=self.routes,
            num_texts=self.pipeline.num_texts, num_scored=self.pipeline.num_scored,
            reads_frames=self.pipeline.reads_vectors,
        )  # fmt: skip

    def check_route(self, path: str) -> None:
        """Raise APIError (400) if the task of the model does not have this route."""
        if path not in self.routes:
            routes = ", ".join(self.routes) or "no route"
            raise APIError(400, f"the model '{self.name}' supports {routes}", param="model", code="model_not_supported")

    def close(self) -> None:
        self.worker.close()
        if self.loop is not None:
            self.loop.close()


class SessionStore:
    """The sessions of a model. Only the thread of the event loop uses this class.

    States are immutable. So a failed or cancelled request leaves its session unchanged, and a request is undone by
    continuing from an earlier state. A session has the states after its latest `depth` + 1 requests. All sessions
    together have at most `max_bytes`, except for the latest state of the most recently used session.
    """

    def __init__(self, max_sessions: int, seconds: float, depth: int, max_bytes: int) -> None:
        self.max_sessions, self.seconds, self.depth, self.max_bytes = max_sessions, seconds, depth, max_bytes
        self._sessions: OrderedDict[str, tuple[float, list[SessionState | None]]] = OrderedDict()
        """The time of the last use and the states of each session. The state before the first request is None."""
        self._bytes: dict[str, int] = {}
        self._in_use: dict[str, list[SessionState | None]] = {}
        """The states of each session with an open request, up to the state from which the request continues."""

    def __len__(self) -> int:
        self._evict()
        return len(self._sessions)

    def begin(self, name: str, undo: int = 0) -> SessionState | None:
        """Lock a session until `end`, and return its state before its latest `undo` requests; None for the first state.

        Raises APIError (409) if another request has locked the session, and (400) if the state is not stored.
        """
        if name in self._in_use:
            raise APIError(409, "another request uses this session", param="session", code="session_in_use")
        self._evict()
        _, states = self._sessions.get(name, (0.0, [None]))
        if undo >= len(states):
            message = f"{undo}; the session has {len(states) - 1} requests that can be undone"
            raise reject("undo", message, "cannot_undo")
        self._in_use[name] = states[: len(states) - undo]
        return states[-1 - undo]

    def end(self, name: str, state: SessionState | None) -> None:
        """Unlock a session and store its new state. None leaves the session unchanged."""
        before = self._in_use.pop(name)
        if state is not None:
            states = [*before, state][-self.depth - 1 :]
            while (size := memory_bytes(states)) > self.max_bytes and len(states) > 1:
                del states[0]
            self._sessions[name], self._bytes[name] = (time.monotonic(), states), size
            self._sessions.move_to_end(name)
        self._evict()

    def _evict(self) -> None:
        now = time.monotonic()
        while self._sessions:
            name, (last_use, _) = next(iter(self._sessions.items()))
            is_within_limits = len(self._sessions) <= self.max_sessions and sum(self._bytes.values()) <= self.max_bytes
            if now - last_use < self.seconds and (is_within_limits or len(self._sessions) == 1):
                return
            del self._sessions[name], self._bytes[name]


def memory_bytes(states: Sequence[SessionState | None]) -> int:
    """Return the memory of states. Shared storage is counted once."""
    stored = [state for state in states if state is not None]
    storages = (tensor.untyped_storage() for state in stored for tensor in leaves(state.state))
    sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
    return sum(state.ids.nbytes for state in stored) + sum(sizes.values())
