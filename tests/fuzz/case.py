"""One case: a folder, what is run in it, and what may come of that."""

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

Check = Callable[["Outcome"], str | None]
"""What is wrong with a case that ended well, if anything."""


@dataclass
class Case:
    """`arguments` are those of `ensue`; `action`, if there is one, is called in its place."""

    name: str
    folder: Path
    arguments: list[str] = field(default_factory=list)
    action: Callable[[], None] | None = None
    stdin: bytes = b""
    streams: tuple[str, str, str] = ("file", "file", "file")
    """What stands behind descriptors 0, 1 and 2: a key of `streams.OPENERS`."""
    environment: dict[str, str] = field(default_factory=dict)
    killed_after: float | None = None
    """The command is first run this many seconds, and killed; then `arguments` with `--resume`."""
    by_itself: bool = False
    """Whether it takes a new interpreter, not a fork."""
    modes: dict[Path, int] = field(default_factory=dict)
    """What the command may do with these paths, which it does not do as root."""
    patience: float = 60
    """Seconds that it may wait; one that computes is stopped sooner, by `cpu_seconds`."""
    cpu_seconds: int | None = None
    """Seconds of processor time; `process.CPU_SECONDS` for None."""
    peak_mib: int | None = None
    """Memory beyond what it began with; `verdict.PEAK_MIB` for None."""
    may_change: set[str] = field(default_factory=set)
    """The names in the folder that the command may write to when it ends well."""
    may_talk: bool = False
    """Whether progress goes to stderr."""
    checks: list[Check] = field(default_factory=list)

    @property
    def output(self) -> Path:
        return self.folder.with_suffix(".out")

    @property
    def complaint(self) -> Path:
        return self.folder.with_suffix(".err")


class Outcome(NamedTuple):
    """`status` is negative for the signal that ended it, None for a case that had to be stopped; `peak_mib` is what
    it took beyond what it began with.
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
    """What is below a folder: a digest for each file, what else it is for everything else."""
    found = {}
    for parent, folders, names in os.walk(os.fsencode(folder)):
        for name in [*folders, *names]:
            path = os.path.join(parent, name)
            found[os.fsdecode(os.path.relpath(path, os.fsencode(folder)))] = _described(path)
    return found


def _described(path: bytes) -> str:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return f"link to {os.fsdecode(os.readlink(path))}"
    if not stat.S_ISREG(mode):
        return stat.filemode(mode)[0]
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
