"""A process that serves: a socket, models that are loaded while it already answers, an end that drains, and a log.

The log has a JSON object on each line, and never a text of a request.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

import uvicorn

from ensue.processor import Precision
from ensue.serving.door import Door
from ensue.serving.limits import Limits
from ensue.serving.metrics import Metrics
from ensue.serving.processes import LOOPBACK
from ensue.serving.protocol import PatientProtocol
from ensue.serving.routes import PATHS
from ensue.serving.service import Service

SWITCH_SECONDS = 0.0005
"""After this time a thread that computes gets its turn, and one that answers; Python's own 5 ms are many steps."""


def serve(
    runs: Sequence[Path], sock: socket.socket, *, host: str, device: str, threads: int, precision: Precision,
    key: str | None, hosts: Sequence[str], limits: Limits, has_sessions: bool, adaptation: Mapping[str, object],
) -> None:  # fmt: skip
    """Serves until SIGTERM or SIGINT. Raises EnsueError if a run cannot be loaded."""
    sys.setswitchinterval(SWITCH_SECONDS)
    metrics = Metrics()
    trusted = [*LOOPBACK, host, *hosts] if hosts or host in LOOPBACK else []
    service = Service(
        limits=limits, metrics=metrics, key=key, hosts=trusted, report=report, log=log, has_sessions=has_sessions
    )
    server = Server(service)
    loading = Loading(server, runs, threads, device=device, precision=precision, adaptation=adaptation)
    loading.start()
    server.run(sockets=[sock])
    loading.join()
    for model in service.models.values():
        model.close()
    if loading.error is not None:
        raise loading.error


class Server(uvicorn.Server):
    """Uvicorn, with an end that lets requests finish and then ends within a stated time."""

    def __init__(self, service: Service) -> None:
        logger = logging.getLogger("uvicorn.error")
        logger.handlers, logger.propagate = [Lines(logging.WARNING)], False
        super().__init__(
            uvicorn.Config(
                Door(service), http=PatientProtocol, loop="auto", lifespan="off", ws="none", log_config=None,
                access_log=False, server_header=False, proxy_headers=False, timeout_graceful_shutdown=5,
            )
        )  # fmt: skip
        PatientProtocol.limits = service.limits
        self.service = service
        self._draining: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, a second one ends at once."""
        if self.service.state in ("loading", "draining"):
            self.should_exit = self.force_exit = True
            return
        self.service.state = "draining"
        log("draining", seconds=self.service.limits.drain_seconds)
        asyncio.get_running_loop().call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._draining = asyncio.get_running_loop().create_task(self._drained())

    async def _drained(self) -> None:
        await self.service.drained()
        self.should_exit = True


class Loading(Thread):
    """Imports torch and loads the models while the server already answers that it is loading."""

    def __init__(self, server: Server, runs: Sequence[Path], threads: int, **options: Any) -> None:
        super().__init__(name="loading", daemon=True)
        self.server, self.runs, self.threads, self.options = server, runs, threads, options
        self.error: BaseException | None = None

    def run(self) -> None:
        """Loads one model after another; an error ends the server."""
        try:
            self._load()
        except BaseException as error:
            self.error = error
            self.server.should_exit = True

    def _load(self) -> None:
        import torch  # noqa: PLC0415  # takes seconds

        from ensue.serving.served import Served  # noqa: PLC0415

        torch.set_num_threads(self.threads)
        service = self.server.service
        models = [
            Served.of(
                run,
                paths=PATHS,
                limits=service.limits,
                metrics=service.metrics,
                report=report,
                long=service.long,
                **self.options,
            )
            for run in self.runs
        ]
        gc.collect()
        gc.freeze()  # what is loaded stays: to look through it would hold up all requests
        service.ready(models)
        log("ready", models=[model.name for model in models])


def log(what: str, **values: Any) -> None:
    """Writes a line to stderr."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    sys.stderr.write(json.dumps({"time": stamp, "event": what, **values}) + "\n")
    sys.stderr.flush()


def report(error: BaseException) -> None:
    """Writes what is needed to find a bug: where it happened. The message is left out, since it may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)
    log("bug", kind=type(error).__name__, trace=[f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames])


class Lines(logging.Handler):
    """The messages of the web server, as lines of the log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record, without its arguments, which may be of a request."""
        log("server", level=record.levelname, message=str(record.msg)[:200])
        if record.exc_info and record.exc_info[1]:
            report(record.exc_info[1])
