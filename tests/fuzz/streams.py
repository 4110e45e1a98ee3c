"""Kinds of descriptors of a command: files, pipes, terminals, full disks, closed ones."""

import os
import pty
from collections.abc import Callable

from fuzz.case import Case

PIPE_BYTES = 10


def _file(case: Case, descriptor: int) -> None:
    """Open a file, for reading as stdin and for writing otherwise."""
    if descriptor == 0:
        memory = os.memfd_create("stdin")
        os.truncate(memory, len(case.stdin))
        os.pwrite(memory, case.stdin, 0)
        _put(memory, 0)
    else:
        path = case.output if descriptor == 1 else case.error_output
        _put(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)


def _closed(case: Case, descriptor: int) -> None:
    os.close(descriptor)


def _full(case: Case, descriptor: int) -> None:
    _put(os.open("/dev/full", os.O_RDWR), descriptor)


def _null(case: Case, descriptor: int) -> None:
    _put(os.open(os.devnull, os.O_RDWR), descriptor)


def _opposite_direction(case: Case, descriptor: int) -> None:
    """Open a descriptor in the opposite direction."""
    _put(os.open(os.devnull, os.O_RDONLY if descriptor else os.O_WRONLY), descriptor)


def _gone(case: Case, descriptor: int) -> None:
    """Open a pipe whose other end is closed."""
    reading, writing = os.pipe()
    os.close(writing if descriptor == 0 else reading)
    _put(reading if descriptor == 0 else writing, descriptor)


def _leaving(case: Case, descriptor: int) -> None:
    """Open a pipe whose reader takes a few bytes and closes it, like `head`."""
    if descriptor == 0:
        _file(case, descriptor)
        return
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(writing)
        os.read(reading, PIPE_BYTES)
        os._exit(0)
    os.close(reading)
    _put(writing, descriptor)


def _terminal(case: Case, descriptor: int) -> None:
    """Open a terminal that ignores output, and whose input is stdin's bytes and an end of file."""
    master, slave = pty.openpty()
    if os.fork() == 0:
        os.close(slave)
        _talk(master, case.stdin.replace(b"\x04", b"")[:1000] + b"\n\x04" if descriptor == 0 else b"")
    os.close(master)
    _put(slave, descriptor)


def _talk(master: int, typed: bytes) -> None:
    try:
        if typed:
            os.write(master, typed)
        while os.read(master, 1024):
            pass
    except OSError:
        pass
    os._exit(0)


OPENERS: dict[str, Callable[[Case, int], None]] = {
    "file": _file, "closed": _closed, "full": _full, "null": _null, "opposite": _opposite_direction, "gone": _gone,
    "leaving": _leaving, "terminal": _terminal,
}  # fmt: skip


def _put(opened: int, descriptor: int) -> None:
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
