"""A server process, which responds while models are loading, drains on SIGTERM, and writes a log.

Each line of the log is a JSON object without texts of requests.
"""

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

from ensue.extensions.serving.application import Application
from ensue.extensions.serving.connection import Connection
from ensue.extensions.serving.limits import Limits
from ensue.extensions.serving.metrics import Metrics
from ensue.extensions.serving.processes import BACKLOG, LOOPBACK
from ensue.extensions.serving.routes import COMMAND_PATHS
from ensue.extensions.serving.service import Service
from ensue.processor import InferencePrecision

THREAD_SWITCH_SECONDS = 0.0005
"""The switch interval of threads. With the default, 5 ms, responses could wait for many steps of the loop."""


def serve(
    runs: Sequence[Path], sock: socket.socket, *, host: str, device: str, threads: int, precision: InferencePrecision,
    key: str | None, hosts: Sequence[str], limits: Limits, has_sessions: bool, adaptation: Mapping[str, object],
) -> None:  # fmt: skip
    """Serve until SIGTERM or SIGINT. Raises EnsueError if a run cannot be loaded."""
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    metrics = Metrics()
    trusted = [*LOOPBACK, host, *hosts] if hosts or host in LOOPBACK else []
    service = Service(
        limits=limits, metrics=metrics, key=key, hosts=trusted, report=report, log=log, has_sessions=has_sessions
    )
    server = Server(service)
    loading = LoadingThread(server, runs, threads, device=device, precision=precision, adaptation=adaptation)
    loading.start()
    server.run(sock)
    loading.join()
    for model in service.models.values():
        model.close()
    if loading.error is not None:
        raise loading.error


class Server:
    """The connections on a socket, with a bounded shutdown."""

    def __init__(self, service: Service) -> None:
        logging.basicConfig(handlers=[LogHandler(logging.WARNING)])
        self.service = service
        self._connections = set[Connection]()
        self._stopping = asyncio.Event()
        self._event_loop: asyncio.AbstractEventLoop | None = None

    def run(self, sock: socket.socket) -> None:
        """Serve until a signal and the end of all requests, until a second signal, or until `stop` is called."""
        handlers = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            with asyncio.Runner(loop_factory=event_loop) as runner:
                runner.run(self._run(sock))
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    async def _run(self, sock: socket.socket) -> None:
        app, limits = Application(self.service), self.service.limits
        self._event_loop = asyncio.get_running_loop()
        server = await self._event_loop.create_server(
            lambda: Connection(app, limits, self._connections), sock=sock, backlog=BACKLOG
        )
        await self._stopping.wait()
        server.close()
        for connection in list(self._connections):
            connection.shut_down()
        end = time.monotonic() + limits.linger_seconds
        while self._connections and time.monotonic() < end:
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        """End without draining. Any thread may call this method."""
        if self._event_loop is None:
            self._stopping.set()
        else:
            self._event_loop.call_soon_threadsafe(self._stopping.set)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._event_loop is None or self.service.state in ("loading", "draining"):
            self.stop()
            return
        self.service.state = "draining"
        log("draining", seconds=self.service.limits.drain_seconds)
        self._draining = asyncio.run_coroutine_threadsafe(self._drain(), self._event_loop)

    async def _drain(self) -> None:
        await self.service.drain()
        self._stopping.set()


def event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of uvloop if it is installed, otherwise of asyncio."""
    try:
        import uvloop  # noqa: PLC0415  # unavailable on Windows
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoadingThread(Thread):
    """A thread that imports torch and loads the models while the server responds."""

    def __init__(self, server: Server, runs: Sequence[Path], threads: int, **options: Any) -> None:
        super().__init__(name="loading", daemon=True)
        self.server, self.runs, self.threads, self.options = server, runs, threads, options
        self.error: BaseException | None = None

    def run(self) -> None:
        """Load one model after another. An error stops the server."""
        try:
            self._load()
        except BaseException as error:
            self.error = error
            self.server.stop()

    def _load(self) -> None:
        import torch  # noqa: PLC0415  # takes seconds

        from ensue.extensions.serving.served_model import ServedModel  # noqa: PLC0415

        torch.set_num_threads(self.threads)
        service = self.server.service
        shared: dict[str, Any] = {
            "limits": service.limits, "metrics": service.metrics, "report": report, "long": service.long_worker,
        }  # fmt: skip
        models = [ServedModel.load_run(run, paths=COMMAND_PATHS, **shared, **self.options) for run in self.runs]
        gc.collect()
        gc.freeze()  # loaded objects are permanent; collections that scan them would delay requests
        service.ready(models)
        log("ready", models=[model.name for model in models])


def log(event: str, **values: Any) -> None:
    """Write a line of the log."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    sys.stderr.write(json.dumps({"time": stamp, "event": event, **values}) + "\n")
    sys.stderr.flush()


def report(error: BaseException) -> None:
    """Log the stack of a bug without its message, which may quote a text of a request."""
    frames = traceback.extract_tb(error.__traceback__)
    log("bug", kind=type(error).__name__, trace=[f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames])


class LogHandler(logging.Handler):
    """A handler of `logging` that writes lines of the log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record without its arguments, which may contain texts of a request."""
        log("server", level=record.levelname, message=str(record.msg)[:200])
        if record.exc_info and record.exc_info[1]:
            report(record.exc_info[1])
