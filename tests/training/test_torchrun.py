"""torchrun restarts processes after one was killed, and the run ends like an undisturbed one."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from training.command_lines import command, settings_of
from training.tiny import reproducible_state

pytestmark = pytest.mark.slow
NUM_WORDS = 3000
RESTARTS = (
    "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "9", "-m", "ensue",
)  # fmt: skip


@contextmanager
def start_process(arguments: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, *arguments], stdout=file, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.terminate()  # which also ends its workers
            process.wait(60)


def workers(process: subprocess.Popen[bytes]) -> list[int]:
    """Return the ids of the processes that torchrun has started."""
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except FileNotFoundError:
        return []
    return [int(number) for number in children.split()]


def wait_for_step(run: Path, min_step: int, process: subprocess.Popen[bytes]) -> None:
    """Wait for a checkpoint of the step `min_step` or a later one."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if any(int(path.name[5:]) >= min_step for path in run.glob("checkpoints/step-*")):
            return
        time.sleep(0.02)
    raise AssertionError("no such checkpoint")


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_runs_with_killed_ranks_are_bit_identical(text: Path, tmp_path: Path) -> None:
    settings, choose = settings_of(steps=250), random.Random(0)
    undisturbed, killed = tmp_path / "full", tmp_path / "killed"
    with start_process(
        [*RESTARTS, *command(text, undisturbed, settings), "--resume"], tmp_path / "full.log"
    ) as process:
        assert process.wait(240) == 0
    with start_process([*RESTARTS, *command(text, killed, settings), "--resume"], tmp_path / "killed.log") as process:
        for min_step in (60, 150):
            wait_for_step(killed, min_step, process)
            time.sleep(choose.random() / 10)
            os.kill(choose.choice(workers(process)), signal.SIGKILL)
        assert process.wait(240) == 0
    assert len(re.findall("resumed from step", (tmp_path / "killed.log").read_text())) == 2
    assert reproducible_state(killed) == reproducible_state(undisturbed)


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_sigterm_saves_a_checkpoint_and_prints_how_to_resume(text: Path, tmp_path: Path) -> None:
    settings = [*settings_of(steps=4000), "train.deterministic=true"]
    run, log = tmp_path / "run", tmp_path / "log"
    with start_process(["-m", "ensue", *command(text, run, settings), "--processes", "2"], log) as process:
        wait_for_step(run, 10, process)
        process.terminate()
        assert process.wait(60) == 130
    output = log.read_text()
    assert len(re.findall(r"saved at step \d+; resume with\n  ensue train --resume --out", output)) == 1
    assert "Traceback" not in output


def test_an_error_of_all_processes_is_printed_once(text: Path, tmp_path: Path) -> None:
    arguments = ["-m", "ensue", *command(text.with_name("none.txt"), tmp_path / "run", []), "--processes", "3"]
    result = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert re.fullmatch(r"ensue: .*none\.txt: no such file or folder.*\n", result.stderr)
