"""Run cases in separate processes, several at a time, and stop those that do not end."""

import contextlib
import gc
import os
import resource
import shutil
import signal
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from fuzz.case import Case, Outcome, inventory
from fuzz.process import run


@dataclass
class _Running:
    case: Case
    before: dict[str, str]
    began: float
    mib: int
    """Memory that the process shares at the fork."""
    stopped: bool = False


def outcomes(cases: Iterable[Case], *, processes: int = 1, keep: bool = False) -> Iterator[Outcome]:
    """Yield the outcome of each case, in the order in which they end. Remove the folders unless `keep` is true."""
    waiting = iter(cases)
    running: dict[int, _Running] = {}
    gc.freeze()  # a child that collected garbage would copy every page
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        while True:
            for case in islice(waiting, processes - len(running)):
                running.update([_started(case)])
            if not running:
                return
            for outcome in _ended(running):
                yield outcome
                if not keep:
                    _remove(outcome.case)
    finally:
        for pid in running:
            _kill(pid)
            os.waitpid(pid, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _started(case: Case) -> tuple[int, _Running]:
    for path in (case.output, case.error_output):
        path.write_bytes(b"")
    before, mib = inventory(case.folder), _anonymous_mib()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pytest's threads hold no lock at a fork
        pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        run(case)
    return pid, _Running(case, before, time.monotonic(), mib)


def _ended(running: dict[int, _Running]) -> Iterator[Outcome]:
    """Wait up to a second, and yield outcomes of ended cases."""
    signal.sigtimedwait({signal.SIGCHLD}, 1.0)
    for pid, entry in list(running.items()):
        ended_pid, status, usage = os.wait4(pid, os.WNOHANG)
        seconds = time.monotonic() - entry.began
        if ended_pid:
            del running[pid]
            _kill(pid)  # its remaining children
            yield _outcome(entry, status, seconds, usage.ru_maxrss // 1024 - entry.mib)
        elif _waited(pid, seconds) > entry.case.wait_seconds and not entry.stopped:
            entry.stopped = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)  # it prints its stack
            time.sleep(0.3)
            _kill(pid)


def _waited(pid: int, seconds: float) -> float:
    """Return the seconds in which a process neither computed nor waited for a processor."""
    with open(f"/proc/{pid}/schedstat") as times:
        computed, queued, _ = map(int, times.read().split())
    return seconds - (computed + queued) / 1e9


def _outcome(entry: _Running, status: int, seconds: float, peak_mib: int) -> Outcome:
    case, code = entry.case, os.waitstatus_to_exitcode(status)
    for path in case.modes:
        if path.exists() and not path.is_symlink():
            path.chmod(0o700)
    stopped = entry.stopped or code == -signal.SIGXCPU
    return Outcome(
        case, None if stopped else code, case.output.read_bytes(), case.error_output.read_text(errors="replace"),
        seconds, peak_mib, entry.before, inventory(case.folder),
    )  # fmt: skip


def _anonymous_mib() -> int:
    """Return the memory of this process that a fork shares at its start, without pages of files."""
    with open("/proc/self/statm") as sizes:
        _, resident, of_files, *_ = map(int, sizes.read().split())
    return (resident - of_files) * resource.getpagesize() >> 20


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _remove(case: Case) -> None:
    shutil.rmtree(os.fsencode(case.folder), ignore_errors=True)
    for path in (case.output, case.error_output):
        path.unlink(missing_ok=True)
