"""A process that serves: a socket, models that are loaded while it already answers, an end that drains, and a log.

The log has a JSON object on each line, and never a text of a request.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

from ensue.extensions.serving.connection import Connection
from ensue.extensions.serving.door import Door
from ensue.extensions.serving.limits import Limits
from ensue.extensions.serving.metrics import Metrics
from ensue.extensions.serving.processes import BACKLOG, LOOPBACK
from ensue.extensions.serving.routes import PATHS
from ensue.extensions.serving.service import Service
from ensue.processor import Precision

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
    server.run(sock)
    loading.join()
    for model in service.models.values():
        model.close()
    if loading.error is not None:
        raise loading.error


class Server:
    """Connections on a socket, and an end that lets requests finish and then ends within a stated time."""

    def __init__(self, service: Service) -> None:
        logging.basicConfig(handlers=[Lines(logging.WARNING)])
        self.service = service
        self._connections = set[Connection]()
        self._end = asyncio.Event()
        self._event_loop: asyncio.AbstractEventLoop | None = None

    def run(self, sock: socket.socket) -> None:
        """Answer until the second signal, until the first one and the end of all answers, or until `stop`."""
        handlers = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            with asyncio.Runner(loop_factory=event_loop) as runner:
                runner.run(self._run(sock))
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    async def _run(self, sock: socket.socket) -> None:
        app, limits = Door(self.service), self.service.limits
        self._event_loop = asyncio.get_running_loop()
        server = await self._event_loop.create_server(
            lambda: Connection(app, limits, self._connections), sock=sock, backlog=BACKLOG
        )
        await self._end.wait()
        server.close()
        for connection in list(self._connections):
            connection.shut_down()
        end = time.monotonic() + limits.farewell_seconds
        while self._connections and time.monotonic() < end:
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        """End at once; from any thread."""
        if self._event_loop is None:
            self._end.set()
        else:
            self._event_loop.call_soon_threadsafe(self._end.set)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Drain at the first signal, and end at once at a second one."""
        if self._event_loop is None or self.service.state in ("loading", "draining"):
            self.stop()
            return
        self.service.state = "draining"
        log("draining", seconds=self.service.limits.drain_seconds)
        self._draining = asyncio.run_coroutine_threadsafe(self._drain(), self._event_loop)

    async def _drain(self) -> None:
        await self.service.drained()
        self._end.set()


def event_loop() -> asyncio.AbstractEventLoop:
    """An event loop of uvloop, where it is installed."""
    try:
        import uvloop  # noqa: PLC0415  # not on Windows
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


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
            self.server.stop()

    def _load(self) -> None:
        import torch  # noqa: PLC0415  # takes seconds

        from ensue.extensions.serving.served import Served  # noqa: PLC0415

        torch.set_num_threads(self.threads)
        service = self.server.service
        shared: dict[str, Any] = {
            "limits": service.limits,
            "metrics": service.metrics,
            "report": report,
            "long": service.long,
        }
        models = [Served.of(run, paths=PATHS, **shared, **self.options) for run in self.runs]
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
