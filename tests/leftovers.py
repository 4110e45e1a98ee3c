"""A watcher process that kills all processes started by the tests once the tests have ended or were killed.

It recognizes them by an environment variable that they inherit.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

NAME = "ENDS_WITH_TESTS"
CHECK_SECONDS = 0.2
"""The interval at which the watcher checks that the tests still run."""


def watch() -> None:
    """Mark all processes that this process starts from now on, and start the watcher."""
    if sys.platform != "linux":
        return
    others = {name: value for name, value in os.environ.items() if name != NAME}
    os.environ[NAME] = mark = f"{os.getpid()}-{time.time_ns()}"
    command = [sys.executable, "-SE", __file__, str(os.getpid()), mark]
    silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    os.posix_spawn(sys.executable, command, others, file_actions=silent, setsid=True)


def marked(mark: str) -> Iterator[int]:
    """Yield the ids of the processes with this mark."""
    entry = f"{NAME}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended, or belongs to another user
            if entry in (path / "environ").read_bytes().split(b"\0"):
                yield int(path.name)


def end_after(tests: int, mark: str) -> None:
    """Wait for the end of the parent process `tests`, then kill all processes with the mark."""
    while os.getppid() == tests:
        time.sleep(CHECK_SECONDS)
    while pids := list(marked(mark)):  # a process may have started another one meanwhile
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(CHECK_SECONDS)


if __name__ == "__main__":
    end_after(int(sys.argv[1]), sys.argv[2])
