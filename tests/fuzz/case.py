"""A case: a folder, a command or a function that runs in it, and its allowed outcomes."""

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

Check = Callable[["Outcome"], str | None]
"""A function that returns the fault of a successful case, if any."""


@dataclass
class Case:
    """A case of `ensue` with `arguments`, or of the function `action` in its place."""

    name: str
    folder: Path
    arguments: list[str] = field(default_factory=list)
    action: Callable[[], None] | None = None
    stdin: bytes = b""
    streams: tuple[str, str, str] = ("file", "file", "file")
    """The kinds of descriptors 0, 1 and 2: keys of `streams.OPENERS`."""
    environment: dict[str, str] = field(default_factory=dict)
    killed_after_seconds: float | None = None
    """If set, the command is killed after this many seconds, and then run with `--resume`."""
    in_new_interpreter: bool = False
    """Whether the command runs in a new interpreter instead of a fork."""
    modes: dict[Path, int] = field(default_factory=dict)
    """Modes of these paths for a command that does not run as root."""
    wait_seconds: float = 60
    """Seconds that it may wait without computing. `cpu_seconds` bounds computing."""
    cpu_seconds: int | None = None
    """Seconds of processor time. None means `process.CPU_SECONDS`."""
    peak_mib: int | None = None
    """Memory beyond that at its start. None means `verdict.PEAK_MIB`."""
    may_change: set[str] = field(default_factory=set)
    """Names in the folder that a successful command may change."""
    writes_progress: bool = False
    """Whether the command writes progress to stderr."""
    checks: list[Check] = field(default_factory=list)

    @property
    def output(self) -> Path:
        return self.folder.with_suffix(".out")

    @property
    def error_output(self) -> Path:
        return self.folder.with_suffix(".err")


class Outcome(NamedTuple):
    """The outcome of a case.

    `status` is negative for a signal, and None for a case that was stopped. `peak_mib` is the memory
    beyond that at its start.
    """

    case: Case
    status: int | None
    out: bytes
    err: str
    seconds: float
    peak_mib: int
    before: dict[str, str]
    after: dict[str, str]


def inventory(folder: Path) -> dict[str, str]:
    """Return the contents of a folder: a digest of each file, and the kind of every other entry."""
    entries = {}
    for parent, folders, names in os.walk(os.fsencode(folder)):
        for name in [*folders, *names]:
            path = os.path.join(parent, name)
            entries[os.fsdecode(os.path.relpath(path, os.fsencode(folder)))] = _described(path)
    return entries


def _described(path: bytes) -> str:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return f"link to {os.fsdecode(os.readlink(path))}"
    if not stat.S_ISREG(mode):
        return stat.filemode(mode)[0]
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
