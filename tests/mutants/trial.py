"""A mutant's trial: its file is written into a copy of the checkout, the tests near it run in a fork, and it is undone.

The process that forks has imported what tests need from other packages, and nothing of `ensue`.
"""

import os
import resource
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

import matplotlib  # noqa: F401
import pydantic  # noqa: F401
import pytest
import safetensors.torch  # noqa: F401
import tokenizers  # noqa: F401
import torch
import typer  # noqa: F401

LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "_build", "__pycache__", ".hypothesis", ".mypy_cache", ".ruff_cache")
IDLE = 10
"""Times its seconds of computing that a trial may take by the clock."""


class Trial(NamedTuple):
    outcome: str
    """"killed", "survived" or "out of time", which is killed too."""
    seconds: float
    """Of computing."""
    by: str
    """The first test that failed."""


def copied(checkout: Path, folder: Path) -> Path:
    """A copy of the checkout, for mutants to be written into."""
    return Path(shutil.copytree(checkout, folder / "checkout", ignore=LEFT_OUT))


def try_tests(root: Path, tests: list[str], limit: float) -> Trial:
    """Whether all tests pass within `limit` seconds of computing, in a copy of the compiled cells."""
    log = root.parent / "log"
    shutil.rmtree(root / ".pytest_cache", ignore_errors=True)
    if (kept := root.parent / "cells").is_dir():
        shutil.copytree(kept, root / ".pytest_cache" / "d" / "cells", copy_function=os.link)
        (root / ".pytest_cache" / "d" / "cells").chmod(0o700)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = os.fork()
    if child == 0:
        _run(root, tests, limit, log)
    status = _waited(child, time.monotonic() + IDLE * limit)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return Trial("out of time", seconds, "")
    outcome = "survived" if status == 0 else "killed"
    return Trial(outcome, seconds, _first_failure(log.read_text(errors="replace")))


def keep_cells(root: Path) -> None:
    """What is compiled now is there for every trial."""
    kept = root.parent / "cells"
    kept.mkdir(exist_ok=True)
    for path in (root / ".pytest_cache" / "d" / "cells").glob("*.so"):
        if not (kept / path.name).exists():
            os.link(path, kept / path.name)


def _waited(child: int, end: float) -> int:
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.05)


def _run(root: Path, tests: list[str], limit: float, log: Path) -> NoReturn:
    status = 3
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        os.chdir(root)
        os.environ["PYTHONPATH"] = str(root / "src")
        sys.path[:0] = [str(root / "src"), str(root / "tests")]
        torch.set_num_threads(1)
        status = int(pytest.main(["-x", "--tb=line", *tests]))
    except BaseException as error:
        print(repr(error))
    finally:
        sys.stdout.flush()
        with suppress(ProcessLookupError):
            os._exit(status)


def _first_failure(log: str) -> str:
    lines = [line for line in log.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0][:300] if lines else log.strip()[-200:].replace("\n", " | ")
