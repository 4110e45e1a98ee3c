"""The process of a case, from the fork to its end, like a new interpreter without its seconds of imports.

It never returns. Descriptors, limits and the streams of `sys` are those of a shell and of Python, and the streams are
flushed like Python's at the end, with status 120 for a failure.
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
MAX_FILE_BYTES = 256 << 20
NOBODY = 65534
PR_SET_PDEATHSIG = 1
"""The request by which a process ends with its parent."""
NOBODY_SUFFIX = "-of-nobody"
"""The suffix of caches for cases that do not run as root."""


def run(case: Case) -> NoReturn:
    """Run the case in the child process."""
    try:
        _prepare(case)
        if case.killed_after_seconds is not None:
            _killed_once(case)
        if case.in_new_interpreter:
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
    log = os.open(case.error_output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
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
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for descriptor, kind in enumerate(case.streams):
        OPENERS[kind](case, descriptor)
    _forbid(case)
    _streams_of_sys()
    sys.argv = ["ensue", *case.arguments]


def _forbid(case: Case) -> None:
    """Remove permissions. Root has all of them, so it becomes another user first."""
    if not case.modes:
        return
    is_root = os.getuid() == 0
    for path in (case.folder, *case.folder.rglob("*")) if is_root else ():
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    for path, mode in case.modes.items():
        if path.exists():  # it may have been damaged afterwards
            path.chmod(mode)
    if is_root:
        os.environ |= {name: os.environ[name] + NOBODY_SUFFIX for name in ("ENSUE_CACHE", "ENSUE_CELLS")}
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _streams_of_sys() -> None:
    sys.stdin = sys.__stdin__ = _stream(0, "r", "strict")
    sys.stdout = sys.__stdout__ = _stream(1, "w", "strict")
    sys.stderr = sys.__stderr__ = _stream(2, "w", "backslashreplace")


def _stream(descriptor: int, mode: str, errors: str) -> io.TextIOWrapper | None:
    """Open a stream like Python, or return None for a closed descriptor or a folder."""
    try:
        os.fstat(descriptor)
        file = open(descriptor, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115 (as long as we live)
    except OSError:
        return None
    if mode == "w" and (descriptor == 2 or file.isatty()):
        file.reconfigure(line_buffering=True)
    return file


def _called(case: Case) -> int:
    """Run the command and return its status. An uncaught error is printed like Python's."""
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
        os.write(100, text.encode(errors="backslashreplace"))  # even if stderr is unusable


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
    """Run the command in a process for a while, kill it, and continue with its files."""
    child = os.fork()
    if child == 0:
        os._exit(_called(case))
    time.sleep(case.killed_after_seconds or 0.0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    sys.argv = ["ensue", *case.arguments, "--resume"]
