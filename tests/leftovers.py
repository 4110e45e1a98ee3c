"""Processes that tests start end with the tests, also where these are killed.

They inherit a variable of the environment, by which a process beside the tests finds them when the tests have ended.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

NAME = "ENDS_WITH_TESTS"
SECONDS = 0.2
"""The time between two looks at whether the tests run."""


def watch() -> None:
    """Mark what this process starts from now on, and start the process that ends it."""
    if sys.platform != "linux":
        return
    others = {name: value for name, value in os.environ.items() if name != NAME}
    os.environ[NAME] = mark = f"{os.getpid()}-{time.time_ns()}"
    command = [sys.executable, "-SE", __file__, str(os.getpid()), mark]
    silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    os.posix_spawn(sys.executable, command, others, file_actions=silent, setsid=True)


def marked(mark: str) -> Iterator[int]:
    """The processes with a mark."""
    entry = f"{NAME}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to somebody else
            if entry in (path / "environ").read_bytes().split(b"\0"):
                yield int(path.name)


def end_after(tests: int, mark: str) -> None:
    """Wait for the end of the tests, whose child this is, and kill all that is left."""
    while os.getppid() == tests:
        time.sleep(SECONDS)
    while left := list(marked(mark)):  # one may have started another meanwhile
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(SECONDS)


if __name__ == "__main__":
    end_after(int(sys.argv[1]), sys.argv[2])
