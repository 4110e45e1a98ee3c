"""The command `ensue` in a forked process, which need not import the package again."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkProcess
from typing import NamedTuple, NoReturn, TextIO

from ensue.cli import main

FORK = multiprocessing.get_context("fork")


class Forked(NamedTuple):
    """A forked process and its standard error."""

    process: ForkProcess
    stderr: TextIO

    def signal(self, number: int) -> None:
        assert self.process.pid
        os.kill(self.process.pid, number)

    def exit_status(self, timeout: float = 300) -> int | None:
        """Wait for the end and return the exit status: negative after a signal, None after `timeout` seconds."""
        self.process.join(timeout)
        return self.process.exitcode


@contextmanager
def forked(arguments: list[str]) -> Iterator[Forked]:
    """Run `ensue arguments ...` without standard output, and kill the process at the end of the block."""
    read, write = os.pipe()
    process = FORK.Process(target=_run, args=(arguments, write))
    process.start()
    os.close(write)
    with open(read, encoding="utf-8") as stderr:
        try:
            yield Forked(process, stderr)
        finally:
            process.kill()
            process.join()


def _run(arguments: list[str], stderr: int) -> NoReturn:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(stderr, 2)
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (as long as the process lives)
    sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    sys.argv = ["ensue", *arguments]
    status = 1
    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        os._exit(status)
