"""What the process of a case does, from the fork to its end: as a new interpreter would, without the seconds it takes.

It never returns. Descriptors, limits and the streams of `sys` are made as a shell and Python make them, and at the end
the streams are flushed as Python does, with status 120 where that fails.
"""

import contextlib
import ctypes
import faulthandler
import io
import os
import resource
import signal
import sys
import time
import traceback
from typing import NoReturn

import ensue.cli
from ensue.errors import EnsueError
from fuzz.case import Case
from fuzz.streams import OPENERS

CPU_SECONDS = 20
MORE_BYTES = 4 << 30
LARGEST_FILE = 256 << 20
NOBODY = 65534
PR_SET_PDEATHSIG = 1
"""The request with which a process ends when its parent has ended."""
OF_NOBODY = "-of-nobody"
"""What stands behind the names of the caches of cases that are not root's."""


def run(case: Case) -> NoReturn:
    """The child's whole life."""
    try:
        _prepare(case)
        if case.killed_after is not None:
            _killed_once(case)
        if case.by_itself:
            os.execv(sys.executable, [sys.executable, "-m", "ensue", *case.arguments])
        status = _called(case)
    except BaseException:
        status = 1
        _complain()
    os._exit(_flushed(status))


def _prepare(case: Case) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    os.chdir(case.folder)
    os.environ.update(case.environment)
    log = os.open(case.complaint, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    high = os.dup2(log, 100)
    os.close(log)
    faulthandler.register(signal.SIGUSR1, file=high)
    faulthandler.register(signal.SIGXCPU, file=high, chain=True)
    faulthandler.enable(file=high)
    with open("/proc/self/statm") as sizes:
        pages = int(sizes.read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MORE_BYTES,) * 2)
    seconds = CPU_SECONDS if case.cpu_seconds is None else case.cpu_seconds
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 2))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for descriptor, kind in enumerate(case.streams):
        OPENERS[kind](case, descriptor)
    _forbid(case)
    _streams_of_sys()
    sys.argv = ["ensue", *case.arguments]


def _forbid(case: Case) -> None:
    """Take rights away; to root nothing is forbidden, so that it becomes somebody else first."""
    if not case.modes:
        return
    is_root = os.getuid() == 0
    for path in (case.folder, *case.folder.rglob("*")) if is_root else ():
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    for path, mode in case.modes.items():
        if path.exists():  # it may have been spoiled afterwards
            path.chmod(mode)
    if is_root:
        os.environ |= {name: os.environ[name] + OF_NOBODY for name in ("ENSUE_CACHE", "ENSUE_CELLS")}
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _streams_of_sys() -> None:
    sys.stdin = sys.__stdin__ = _stream(0, "r", "strict")
    sys.stdout = sys.__stdout__ = _stream(1, "w", "strict")
    sys.stderr = sys.__stderr__ = _stream(2, "w", "backslashreplace")


def _stream(descriptor: int, mode: str, errors: str) -> io.TextIOWrapper | None:
    """As Python opens it; None where there is none, or where it is a folder."""
    try:
        os.fstat(descriptor)
        file = open(descriptor, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115 (as long as we live)
    except OSError:
        return None
    if mode == "w" and (descriptor == 2 or file.isatty()):
        file.reconfigure(line_buffering=True)
    return file


def _called(case: Case) -> int:
    """The status with which it ends; what nobody caught is shown as Python shows it."""
    try:
        if case.action is None:
            ensue.cli.main()
        else:
            case.action()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except EnsueError as error:
        assert case.action is not None, "the command line lets none of these through"
        print(f"ensue: {error}", file=sys.stderr)
        return 2
    except BaseException:
        _complain()
        return 1
    return 0


def _complain() -> None:
    text = traceback.format_exc()
    with contextlib.suppress(OSError):
        os.write(100, text.encode(errors="backslashreplace"))  # whatever became of stderr


def _flushed(status: int) -> int:
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception:
            _complain()
            return 120
    return status


def _killed_once(case: Case) -> None:
    """Run it in a process of its own for a while, kill that, and go on with what it left."""
    child = os.fork()
    if child == 0:
        os._exit(_called(case))
    time.sleep(case.killed_after or 0.0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    sys.argv = ["ensue", *case.arguments, "--resume"]
