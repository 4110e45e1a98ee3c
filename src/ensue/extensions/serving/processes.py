"""The listening socket, the ids of models, and a supervisor of several processes on one socket.

The supervisor forks the processes, forwards signals, and restarts a process that a signal has killed. It does not
import torch, whose threads would not survive a fork.
"""

import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from types import FrameType

from ensue.errors import EnsueError
from ensue.extension import run_name

BACKLOG = 1024
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
"""The host names of the loopback interface."""
METRICS_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the folder in which prometheus_client shares the metrics of processes."""
MIN_LIFETIME_SECONDS = 5.0
"""If a process is killed within this time after its start, it is not restarted, and the others are stopped."""


def run_processes(count: int, function: Callable[[], int]) -> int:
    """Call `function`, which returns an exit status, in `count` processes, and return the highest exit status.

    Raises EnsueError if the system has no fork.
    """
    if not hasattr(os, "fork"):
        raise EnsueError(
            "--processes needs fork, which this system lacks; start one server per process, on different ports"
        )
    folder = tempfile.mkdtemp(prefix="ensue-serve-")
    os.environ[METRICS_FOLDER_VARIABLE] = folder
    try:
        return Supervisor(function, Path(folder)).run(count)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Supervisor:
    """The parent of the server processes, with the start time of each process."""

    def __init__(self, function: Callable[[], int], folder: Path) -> None:
        self.function, self.folder = function, folder
        self.children: dict[int, float] = {}
        self.read_end, self.write_end = os.pipe()
        """A pipe. Only the parent has its write end, so that children read end-of-file when the parent dies."""
        self.is_ending = False

    def run(self, count: int) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._forward)
        for _ in range(count):
            self._start()
        highest = 0
        while self.children:
            child, status = os.wait()
            started = self.children.pop(child, None)
            if started is None:
                continue
            for file in self.folder.glob(f"gauge_live*_{child}.db"):
                file.unlink(missing_ok=True)
            if self.is_ending:
                highest = max(highest, os.waitstatus_to_exitcode(status))
            elif os.waitstatus_to_exitcode(status) >= 0 or time.monotonic() - started < MIN_LIFETIME_SECONDS:
                highest = max(highest, abs(os.waitstatus_to_exitcode(status)))
                self._forward(signal.SIGTERM, None)
            else:
                self._start()
        return highest

    def _start(self) -> None:
        child = os.fork()
        if child == 0:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.close(self.write_end)
            Thread(target=self._end_with_parent, daemon=True).start()
            os._exit(self.function())
        self.children[child] = time.monotonic()

    def _end_with_parent(self) -> None:
        os.read(self.read_end, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self.is_ending = True
        for child in self.children:
            os.kill(child, number)


def open_listener(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises EnsueError if the port is in use, or the address is not on this machine."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        if os.name == "posix":  # on Windows, the option would allow two servers on one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        raise EnsueError(f"{host}:{port}: cannot listen: {error.strerror or error}") from None
    listener.setblocking(False)
    return listener


def check_unique_ids(runs: Sequence[Path]) -> None:
    """Raise EnsueError if two runs have the same id."""
    names: dict[str, Path] = {}
    for run in runs:
        other = names.setdefault(model_id(run), run)
        if other is not run:
            raise EnsueError(
                f"{other} and {run}: two models with the id {model_id(run)}; rename one of the directories"
            )


def model_id(run: Path) -> str:
    """Return the id of a run's model: the name of the directory, with question marks for bytes that are not UTF-8."""
    return run_name(run).encode("utf-8", "replace").decode()
