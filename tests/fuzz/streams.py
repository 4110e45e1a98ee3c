"""What may stand behind a descriptor of a command: files, pipes, terminals, full disks, nothing."""

import os
import pty
from collections.abc import Callable

from fuzz.case import Case

PIPE_BYTES = 10


def _file(case: Case, descriptor: int) -> None:
    """The usual: stdin from a file, the others into one."""
    if descriptor == 0:
        memory = os.memfd_create("stdin")
        os.truncate(memory, len(case.stdin))
        os.pwrite(memory, case.stdin, 0)
        _put(memory, 0)
    else:
        path = case.output if descriptor == 1 else case.complaint
        _put(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)


def _closed(case: Case, descriptor: int) -> None:
    os.close(descriptor)


def _full(case: Case, descriptor: int) -> None:
    _put(os.open("/dev/full", os.O_RDWR), descriptor)


def _null(case: Case, descriptor: int) -> None:
    _put(os.open(os.devnull, os.O_RDWR), descriptor)


def _other_way(case: Case, descriptor: int) -> None:
    """Open for writing where it is read, and for reading where it is written."""
    _put(os.open(os.devnull, os.O_RDONLY if descriptor else os.O_WRONLY), descriptor)


def _gone(case: Case, descriptor: int) -> None:
    """A pipe whose other end is closed."""
    reading, writing = os.pipe()
    os.close(writing if descriptor == 0 else reading)
    _put(reading if descriptor == 0 else writing, descriptor)


def _leaving(case: Case, descriptor: int) -> None:
    """A pipe whose reader takes a few bytes and goes, as `head` does."""
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
    """What is written to it is read and thrown away; what it says is stdin's bytes and an end of file."""
    master, slave = pty.openpty()
    if os.fork() == 0:
        os.close(slave)
        _talk(master, case.stdin.replace(b"\x04", b"")[:1000] + b"\n\x04" if descriptor == 0 else b"")
    os.close(master)
    _put(slave, descriptor)


def _talk(master: int, said: bytes) -> None:
    try:
        if said:
            os.write(master, said)
        while os.read(master, 1024):
            pass
    except OSError:
        pass
    os._exit(0)


OPENERS: dict[str, Callable[[Case, int], None]] = {
    "file": _file, "closed": _closed, "full": _full, "null": _null, "other way": _other_way, "gone": _gone,
    "leaving": _leaving, "terminal": _terminal,
}  # fmt: skip


def _put(opened: int, descriptor: int) -> None:
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
