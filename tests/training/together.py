"""Runs in several forked processes, which need not import the package again."""

import json
import multiprocessing
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ensue.errors import ReportedError
from ensue.recipe import Recipe
from ensue.runs.reporter import StepReport
from ensue.training.loop import Trainer
from training.tiny import Recorder, run_tiny

FORK = multiprocessing.get_context("fork")
STATUS_OF_A_MISTAKE, SILENT = 2, 3


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("localhost", 0))
        return int(held.getsockname()[1])


def together(size: int, work: Callable[[int], None], *, log: Path, seconds: float = 300) -> list[int | None]:
    """Call `work(rank)` in `size` processes, write their errors to files in `log`, and return their statuses."""
    log.mkdir(exist_ok=True)
    port = free_port()
    started = [FORK.Process(target=_run, args=(rank, size, port, work, log / str(rank))) for rank in range(size)]
    for process in started:
        process.start()
    for process in started:
        process.join(seconds)
    for process in started:
        process.kill()
        process.join()
    return [process.exitcode for process in started]


def _run(rank: int, size: int, port: int, work: Callable[[int], None], log: Path) -> None:
    names = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()}, MASTER_ADDR="localhost")
    status = 1
    try:
        work(rank)
        status = 0
    except ReportedError:
        status = SILENT
    except Exception as error:
        log.write_text(f"{error}\n")
        status = STATUS_OF_A_MISTAKE
        traceback.print_exc(file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(status)


class StoppedAfter(Recorder):
    """Sends SIGTERM to its process after a step."""

    def __init__(self, step: int | None) -> None:
        super().__init__()
        self.last = step

    def stepped(self, report: StepReport) -> None:
        super().stepped(report)
        if report.step == self.last:
            signal.raise_signal(signal.SIGTERM)


def losses_of(
    recipe: Recipe, out: Path, *, processes: int = 1, stop_after: int | None = None, **options: Any
) -> list[float]:
    """Return the loss of each step of a run in `processes` processes, which stop after the step `stop_after`."""
    losses = out.with_suffix(".losses")

    def train(rank: int) -> None:
        recorder = StoppedAfter(stop_after)
        run_tiny(recipe, out, reporter=recorder, **options)
        if rank == 0:
            losses.write_text(json.dumps([report.loss for report in recorder.steps]))

    if processes == 1:
        train(0)
    else:
        assert together(processes, train, log=out.with_suffix(".log")) == [0] * processes
    return list(json.loads(losses.read_text()))


def statuses_with_lost_rank(
    recipe: Recipe, size: int, number: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[int | None], str]:
    """Train in `size` processes, of which rank 1 sends itself a signal. Returns the statuses and the error."""
    step = Trainer.step

    def lost_step(trainer: Trainer) -> None:
        if trainer.progress.step == 4:
            os.kill(os.getpid(), number)
        step(trainer)

    def train(rank: int) -> None:
        if rank == 1:
            monkeypatch.setattr(Trainer, "step", lost_step)
        run_tiny(recipe, folder / "run", timeout=5)

    statuses = together(size, train, log=folder / "log", seconds=20)
    (line,) = [path.read_text().strip() for path in (folder / "log").iterdir()]
    return statuses, line
