"""The socket of a server, the names of its models, and several processes on the socket, for several cores.

A parent starts the processes, passes signals on, and replaces them. It computes nothing and has not imported torch,
so that it can be forked.
"""

from __future__ import annotations

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
from ensue.hub import run_name

BACKLOG = 1024
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
"""The names of this machine for itself."""
FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder in which prometheus_client adds up the numbers of processes."""
TOO_SOON = 5.0
"""A process that ends so many seconds after its start would end again."""


def in_processes(count: int, work: Callable[[], int]) -> int:
    """Runs `work` in `count` processes until a signal ends them; returns the worst of their exit statuses.

    `work` is a child's whole life and returns its exit status. Raises EnsueError where there is no fork.
    """
    if not hasattr(os, "fork"):
        raise EnsueError(
            "--processes needs fork, which this system does not have; start several servers on other ports"
        )
    folder = tempfile.mkdtemp(prefix="ensue-serve-")
    os.environ[FOLDER] = folder
    try:
        return Parent(work, Path(folder)).run(count)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Parent:
    """The processes by their ids, with the time of their start."""

    def __init__(self, work: Callable[[], int], folder: Path) -> None:
        self.work, self.folder = work, folder
        self.children: dict[int, float] = {}
        self.alive, self.held = os.pipe()
        """A pipe that only the parent can write to: it ends with the parent, whatever ends that."""
        self.is_ending = False

    def run(self, count: int) -> int:
        """Starts them, and replaces one that is killed."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        for _ in range(count):
            self._start()
        worst = 0
        while self.children:
            child, status = os.wait()
            started = self.children.pop(child, None)
            if started is None:
                continue
            for file in self.folder.glob(f"gauge_live*_{child}.db"):
                file.unlink(missing_ok=True)
            if self.is_ending:
                worst = max(worst, os.waitstatus_to_exitcode(status))
            elif os.waitstatus_to_exitcode(status) >= 0 or time.monotonic() - started < TOO_SOON:
                worst = max(worst, abs(os.waitstatus_to_exitcode(status)))
                self._pass_on(signal.SIGTERM, None)
            else:
                self._start()
        return worst

    def _start(self) -> None:
        child = os.fork()
        if child == 0:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.close(self.held)
            Thread(target=self._end_with_parent, daemon=True).start()
            os._exit(self.work())
        self.children[child] = time.monotonic()

    def _end_with_parent(self) -> None:
        os.read(self.alive, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.is_ending = True
        for child in self.children:
            os.kill(child, number)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises EnsueError if the port is taken or the host is not of this machine."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        if os.name == "posix":  # elsewhere it would let two servers have one port
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
    except OSError as error:
        raise EnsueError(f"{host}:{port}: cannot listen there: {error.strerror or error}") from None
    found.setblocking(False)
    return found


def check_names(runs: Sequence[Path]) -> None:
    """Raises EnsueError for two runs of one name."""
    names: dict[str, Path] = {}
    for run in runs:
        other = names.setdefault(name_of(run), run)
        if other is not run:
            raise EnsueError(f"{other} and {run}: two models with the id {name_of(run)}; rename one of the directories")


def name_of(run: Path) -> str:
    """The id of a run's model: the name of its directory; what is no UTF-8 in it becomes question marks."""
    return run_name(run).encode("utf-8", "replace").decode()
