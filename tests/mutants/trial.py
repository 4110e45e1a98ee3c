"""The trial of a mutant: nearby tests run in a fork, in a copy of the checkout with the mutant.

The forking process has imported other packages that tests need, and nothing of `ensue`.
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
"""The multiple of its limit of computing seconds that a trial may take by the clock."""


class Trial(NamedTuple):
    outcome: str
    """The outcome: "killed", "survived" or "out of time", which counts as killed."""
    seconds: float
    """Seconds of processor time."""
    by: str
    """The first test that failed."""


def copied(checkout: Path, folder: Path) -> Path:
    """Copy the checkout for mutants."""
    return Path(shutil.copytree(checkout, folder / "checkout", ignore=LEFT_OUT))


def try_tests(root: Path, tests: list[str], limit: float) -> Trial:
    """Run the tests within `limit` seconds of computing, with a copy of the compiled cells."""
    log = root.parent / "log"
    shutil.rmtree(root / ".pytest_cache", ignore_errors=True)
    if (stored_cells := root.parent / "cells").is_dir():
        shutil.copytree(stored_cells, root / ".pytest_cache" / "d" / "cells", copy_function=os.link)
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
    """Store the compiled cells for every trial."""
    stored_cells = root.parent / "cells"
    stored_cells.mkdir(exist_ok=True)
    for path in (root / ".pytest_cache" / "d" / "cells").glob("*.so"):
        if not (stored_cells / path.name).exists():
            os.link(path, stored_cells / path.name)


def _waited(child: int, end: float) -> int:
    while True:
        ended_pid, status = os.waitpid(child, os.WNOHANG)
        if ended_pid:
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
